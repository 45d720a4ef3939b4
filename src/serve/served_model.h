// A model in memory with what computes for it. Which checkpoint it is never changes: a newer one is another object,
// and this one lives as long as requests refer to it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/exec.h"
#include "core/json.h"
#include "infer/load.h"
#include "model/decoder.h"
#include "model/probe.h"
#include "model/tree_scorer.h"
#include "serve/batcher.h"

namespace ddl {

class ServedModel {
 public:
  // `path` is a run, a checkpoint or a model's folder. Throws UserError.
  ServedModel(std::string name, const std::string& path, const LoadOptions& load, Index slots, const Exec& ex)
      : ServedModel(std::move(name), load_model(path, load, ex), slots, ex) {}
  ServedModel(std::string name, LoadedModel loaded, Index slots, const Exec& ex);

  const std::string& name() const { return name_; }
  Index step() const { return step_; }               // of the checkpoint; -1: it is none
  std::int64_t created() const { return created_; }  // seconds since 1970
  const ModelConfig& config() const { return loaded_.weights.config(); }
  const Tokenizer& tokenizer() const { return *loaded_.tokenizer; }
  const Weights& weights() const { return loaded_.weights; }
  Index context() const { return config().context; }

  // What a client may know: rule, sizes, step.
  Json description() const;

  // Tokens of a text; where a text begins a document, end-of-text goes before it.
  std::vector<std::int32_t> encode(std::string_view text, bool begins) const;
  // A token as text that is its own: bytes that are no character as "bytes:\xNN", what has no text as "token:N".
  std::string token_text(std::int32_t token) const;

  // Of the engine's thread.
  Batcher& batcher() { return *batcher_; }
  TreeScorer& scorer(const Exec& ex);
  // For sequences of `tokens` tokens or fewer; the rest of its batch is padding. Lives until the next call.
  Probe& probe(Index tokens, const Exec& ex);

 private:
  const Weights& plain_weights(const Exec& ex);  // in f32, whatever they are stored in

  std::string name_;
  LoadedModel loaded_;
  Index step_ = -1;
  std::int64_t created_ = 0;
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<Batcher> batcher_;
  std::unique_ptr<TreeScorer> scorer_;
  std::unique_ptr<Weights> plain_;  // of small weights
  std::unique_ptr<Probe> probe_;
};
using ServedModelPtr = std::shared_ptr<ServedModel>;

}  // namespace ddl
