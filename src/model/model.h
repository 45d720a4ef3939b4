// A model behind a header: all that training, decoding and evaluation see.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/arena.h"
#include "core/bf16.h"
#include "core/exec.h"
#include "model/config.h"
#include "model/params.h"
#include "model/residual/residual.h"

namespace ddl {

// B sequences of T tokens. A negative target is not predicted: it adds no loss and no gradient.
struct BatchView {
  const std::int32_t* token_BT = nullptr;
  const std::int32_t* target_BT = nullptr;
};

// Per token, wanted by evaluation; each may be null. Tokens without a target give 0.
struct TokenScores {
  float* loss_N = nullptr;
  std::uint8_t* correct_N = nullptr;  // 1 where the target is the most likely token
};

// Floating-point operations per token, a multiply-add as two, exact from the shapes. Not counted: the
// pointwise work inside attention and the MLP (rotation, softmax, SwiGLU), which has functions whose
// operations are a matter of taste.
struct Flops {
  double linear = 0;     // the weights' matrix products
  double attention = 0;  // over the unmasked half
  double head = 0;
  double residual = 0;  // norms, compressors, branches, rewrite
  double total() const { return linear + attention + head + residual; }
};

class Model {
 public:
  enum class Mode { kTrain, kInfer };

  virtual ~Model() = default;

  virtual const ModelConfig& config() const = 0;
  virtual BatchShape shape() const = 0;
  virtual const ParamTable& table() const = 0;
  virtual const Arena& arena() const = 0;

  // All parameters and their gradients, laid out by table(). After changing parameters call params_changed(),
  // or keep bf16_copy() (null in f32) up to date, as the fused optimizer does.
  virtual std::span<float> params() = 0;
  virtual std::span<float> grads() = 0;
  virtual bf16* bf16_copy() = 0;
  virtual void params_changed(const Exec& ex) = 0;

  // Mean loss over the targets. The second form also adds grad_scale times its gradient to grads().
  virtual double loss(const BatchView& batch, const TokenScores& scores, const Exec& ex) = 0;
  virtual double loss_and_grad(const BatchView& batch, double grad_scale, const Exec& ex) = 0;

  // What the gate of sublayer s did in the last loss_and_grad.
  virtual GateTrace trace(Index s) const = 0;
};

// Parameters at their starting values for `seed`. Throws UserError, with the numbers, on impossible sizes and
// where the plan exceeds the machine's memory.
std::unique_ptr<Model> make_model(const ModelConfig& config, BatchShape shape, Model::Mode mode,
                                  std::uint64_t seed, const Exec& ex);

// What make_model would allocate, by name, and what a step costs, without allocating it.
struct ModelPlan {
  ParamTable table;
  std::vector<Arena::Entry> memory;
  std::size_t total_bytes = 0;
  Flops forward, backward;             // per token
  double recomputed = 0;               // FLOPs per token of what backward computes again to save memory
  Index cache_bytes_per_token = 0;     // attention's keys and values
  Index cache_bytes_per_sequence = 0;  // the residual rule's history
};
ModelPlan plan_model(const ModelConfig& config, BatchShape shape, Model::Mode mode);

}  // namespace ddl
