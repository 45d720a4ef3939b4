// A trained model that can be watched and interfered with while it computes: what audits need. It runs the pass
// of training on the native engine, without gradients, and keeps what such a pass keeps.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/exec.h"
#include "core/function_ref.h"
#include "model/config.h"
#include "model/token_series.h"
#include "model/trainable.h"
#include "model/weights.h"

namespace ddl {

// The series that every model has, besides those of its rule: the sublayers' output h, C numbers per token.
inline constexpr const char* kOutputSeries = "output";

// What the head would say in the middle of the network, per token; each may be null. Tokens without a target give 0.
struct LensScores {
  float* loss_N = nullptr;
  std::uint8_t* correct_N = nullptr;
  float* own_N = nullptr;  // log-probability of the input token itself
};

class Probe {
 public:
  virtual ~Probe() = default;
  virtual const ModelConfig& config() const = 0;
  virtual BatchShape shape() const = 0;

  // Mean loss over the targets, with the replacement that is in force.
  virtual double loss(const BatchView& batch, const TokenScores& scores, const Exec& ex) = 0;

  // What there is in front of the write of sublayer s; s = S: in front of the head.
  struct Depth {
    Index s = 0;
    StateView state;
    const float* context_NC = nullptr;  // the normalised input
    const float* h_NC = nullptr;        // the output; null at s = S
  };
  using Visit = FunctionRef<void(const Depth&)>;
  // The same, and visits every depth from 0 to S.
  virtual double watch(const BatchView& batch, const TokenScores& scores, Visit visit, const Exec& ex) = 0;

  // During a visit: the head at this depth. False: the rule cannot say what it would read.
  virtual bool lens(const BatchView& batch, const LensScores& scores, const Exec& ex) = 0;

  // What follows token n of the last pass: V logits.
  virtual std::vector<float> logits(Index n, const Exec& ex) = 0;

  // What the rule reports about sublayer s in the last pass.
  virtual std::vector<TokenSeries> series(Index s) const = 0;

  // In all passes from now on; null ends it. It must live as long. False: this model has no such series, or one that
  // cannot be replaced; then none is in force.
  virtual bool replace(const Replacement* replacement) = 0;
};

// The weights must outlive it. Throws UserError on impossible sizes.
std::unique_ptr<Probe> make_probe(const Weights& weights, BatchShape shape, const Exec& ex);

}  // namespace ddl
