#include "model/engine.h"

#include <algorithm>
#include <cctype>

#include "core/error.h"
#include "core/plugin.h"
#include "model/native/engine.h"
#include "model/reference/engine.h"

namespace ddl {
namespace {

// A new engine is one line here. The torch engine is in a library of its own.
std::vector<const Engine*> engines() { return {&native_engine(), &reference_engine()}; }
constexpr const char* kTorch = "torch";

const Engine& torch_engine() {
  using Get = const Engine* (*)();
  static const auto get = reinterpret_cast<Get>(torch_plugin_symbol("ddl_torch_engine", "the torch engine"));
  return *get();
}

std::string& device_setting() {
  static std::string device = "auto";
  return device;
}

}  // namespace

std::vector<std::string> engine_names() {
  std::vector<std::string> names;
  for (const Engine* engine : engines()) names.push_back(engine->name());
  names.push_back(kTorch);
  return names;
}

const Engine& find_engine(const std::string& name) {
  for (const Engine* engine : engines())
    if (engine->name() == name) return *engine;
  if (name == kTorch) return torch_engine();
  throw UserError("no engine '{}'; there are {} (nearest: {})", name, fmt::join(engine_names(), ", "),
                  nearest(name, engine_names()));
}

const Engine& engine_or_native(const std::string& name) {
  return name == kTorch && !torch_plugin_problem().empty() ? native_engine() : find_engine(name);
}

void choose_device(const std::string& device) {
  const std::string gpu = "cuda:";
  const bool numbered = device.starts_with(gpu) && device.size() > gpu.size() &&
                        device.size() <= gpu.size() + 2 &&
                        std::all_of(device.begin() + std::ssize(gpu), device.end(),
                                    [](unsigned char c) { return std::isdigit(c) != 0; });
  if (device != "cpu" && device != "cuda" && device != "auto" && !numbered)
    throw UserError("the device is '{}'; expected cpu, cuda, cuda:N (N from 0) or auto", device);
  device_setting() = device;
}
const std::string& chosen_device() { return device_setting(); }

void check_batch(const ModelConfig& config, BatchShape shape) {
  config.check();
  if (shape.B < 1 || shape.B > kMaxBatch || shape.T < 1 || shape.T > config.context)
    throw UserError("a batch of {} x {} tokens: expected 1 to {} sequences of 1 to {} tokens (model.context)",
                    shape.B, shape.T, kMaxBatch, config.context);
}

std::unique_ptr<TrainableModel> make_trainable(const ModelConfig& config, BatchShape shape,
                                               const OptimizerConfig& optimizer, std::uint64_t seed,
                                               const Exec& ex) {
  check_batch(config, shape);
  return find_engine(config.engine).make_trainable(config, shape, optimizer, seed, ex);
}

std::unique_ptr<Decoder> make_decoder(const Weights& weights, const DecoderShape& shape, const Exec& ex) {
  const ModelConfig& config = weights.config();
  if (shape.slots < 1 || shape.chunk < 1 || shape.context < 0 || shape.context > config.context)
    throw UserError(
        "a decoder for {} sequences of {} tokens, {} at a time: expected at least one, and at most {} tokens "
        "(model.context)",
        shape.slots, shape.context, shape.chunk, config.context);
  return find_engine(config.engine).make_decoder(weights, shape, ex);
}

std::unique_ptr<TreeScorer> make_tree_scorer(const Weights& weights, const TreeShape& shape, const Exec& ex) {
  if (shape.batch_tokens < 1) throw UserError("{} tokens at a time: expected at least 1", shape.batch_tokens);
  DDL_CHECK(shape.depths > 0, "{} depths", shape.depths);
  return find_engine(weights.config().engine).make_tree_scorer(weights, shape, ex);
}

std::size_t total_bytes(const std::vector<Arena::Entry>& memory) {
  std::size_t bytes = 0;
  for (const Arena::Entry& entry : memory) bytes += entry.bytes;
  return bytes;
}

}  // namespace ddl
