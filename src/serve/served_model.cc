#include "serve/served_model.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <utility>

#include "core/error.h"
#include "infer/text_stream.h"
#include "model/engine.h"

namespace ddl {
namespace {

// "step-00000042" -> 42; -1: no checkpoint.
Index step_of_folder(const std::string& folder) {
  const std::string name = std::filesystem::path(folder).filename().string();
  Index step = -1;
  if (name.starts_with("step-")) std::from_chars(name.data() + 5, name.data() + name.size(), step);
  return step;
}

std::int64_t written_at(const std::string& folder) {
  std::error_code error;
  const auto time = std::filesystem::last_write_time(folder + "/config.json", error);
  if (error) return 0;
  const auto age = std::filesystem::file_time_type::clock::now() - time;
  return std::chrono::duration_cast<std::chrono::seconds>(
             (std::chrono::system_clock::now() - age).time_since_epoch())
      .count();
}

// The next power of two from 16 on, within the context: few sizes, of which one is kept.
Index probe_tokens(Index tokens, Index context) {
  Index size = 16;
  while (size < tokens) size *= 2;
  return std::min(size, context);
}

}  // namespace

ServedModel::ServedModel(std::string name, LoadedModel loaded, Index slots, const Exec& ex)
    : name_(std::move(name)), loaded_(std::move(loaded)) {
  step_ = step_of_folder(loaded_.folder);
  created_ = written_at(loaded_.folder);
  decoder_ = make_decoder(loaded_.weights, {.slots = slots, .chunk = Batcher::kStepTokens}, ex);
  batcher_ = std::make_unique<Batcher>(*decoder_, *loaded_.tokenizer);
}

Json ServedModel::description() const {
  Json json;
  json["residual"] = config().residual();
  json["layers"] = config().layers;
  json["width"] = config().width;
  json["sublayers"] = config().sublayers();
  json["context"] = context();
  json["vocab"] = config().vocab;
  json["parameters"] = weights().table().parameter_count();
  json["precision"] = weights().numbers();
  json["tokenizer"] = tokenizer().name();
  json["step"] = step_ < 0 ? Json() : Json(step_);
  return json;
}

std::vector<std::int32_t> ServedModel::encode(std::string_view text, bool begins) const {
  std::vector<TokenId> ids;
  if (begins) ids.push_back(tokenizer().end_of_text());
  tokenizer().encode(text, ids);
  return {ids.begin(), ids.end()};
}

std::string ServedModel::token_text(std::int32_t token) const {
  const TokenId id = static_cast<TokenId>(token);
  const std::string bytes = tokenizer().decode({&id, 1});
  if (bytes.empty())
    return id == tokenizer().end_of_text() ? "<|endoftext|>" : fmt::format("token:{}", token);
  if (to_valid_utf8(bytes) == bytes) return bytes;
  std::string text = "bytes:";
  for (const char c : bytes) text += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return text;
}

TreeScorer& ServedModel::scorer(const Exec& ex) {
  if (!scorer_) scorer_ = make_tree_scorer(loaded_.weights, {}, ex);
  return *scorer_;
}

const Weights& ServedModel::plain_weights(const Exec& ex) {
  if (!loaded_.weights.packed()) return loaded_.weights;
  if (!plain_) plain_ = std::make_unique<Weights>(to_format(loaded_.weights, WeightFormat::kF32, ex));
  return *plain_;
}

Probe& ServedModel::probe(Index tokens, const Exec& ex) {
  const Index size = probe_tokens(tokens, context());
  if (!probe_ || probe_->shape().T != size) {
    probe_.reset();
    probe_ = make_probe(plain_weights(ex), {1, size}, ex);
  }
  return *probe_;
}

}  // namespace ddl
