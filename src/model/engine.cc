#include "model/engine.h"

#include "core/error.h"
#include "model/native/engine.h"
#include "model/plan.h"
#include "model/reference/engine.h"

namespace ddl {
namespace {

// A new engine is one line here.
std::vector<const Engine*> engines() { return {&native_engine(), &reference_engine()}; }

}  // namespace

std::vector<std::string> engine_names() {
  std::vector<std::string> names;
  for (const Engine* engine : engines()) names.push_back(engine->name());
  return names;
}

const Engine& find_engine(const std::string& name) {
  for (const Engine* engine : engines())
    if (engine->name() == name) return *engine;
  throw UserError("no engine '{}'; there are {} (nearest: {})", name, fmt::join(engine_names(), ", "),
                  nearest(name, engine_names()));
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
