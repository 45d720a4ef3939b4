// A model that learns, whatever engine computes it: forward, backward and the optimizer's update.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/arena.h"
#include "core/exec.h"
#include "core/function_ref.h"
#include "model/config.h"
#include "model/optimizer/optimizer.h"
#include "model/token_series.h"
#include "model/weights.h"

namespace ddl {

struct BatchShape {
  Index B = 1, T = 1;
  Index N() const { return B * T; }
};

// Throws UserError, with the numbers, where the batch does not fit the model.
void check_batch(const ModelConfig& config, BatchShape shape);

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

class TrainableModel {
 public:
  virtual ~TrainableModel() = default;

  virtual const ModelConfig& config() const = 0;
  virtual BatchShape shape() const = 0;

  // Parameters and the optimizer's state as they lie in this process's memory. An engine whose numbers live
  // elsewhere brings them here with download() and takes changes over with upload(), which every engine needs
  // after a change.
  virtual Weights& weights() = 0;
  virtual Optimizer& optimizer() = 0;
  virtual void download(const Exec& /*ex*/) {}
  virtual void upload(const Exec& ex) = 0;

  // Mean loss over the targets. The second form also adds grad_scale times its gradient to gradients(), which
  // are laid out by the weights' table.
  virtual double loss(const BatchView& batch, const TokenScores& scores, const Exec& ex) = 0;
  virtual double loss_and_grad(const BatchView& batch, double grad_scale, const Exec& ex) = 0;
  virtual std::span<float> gradients() = 0;
  // The GPU that computes; none where it is the CPU. With one, gradients() is a copy for looking at, and what several ranks
  // sum is in the GPU's memory.
  struct Gpu {
    int number = 0;
    std::string address;  // on the machine's bus
  };
  virtual std::optional<Gpu> gpu() const { return std::nullopt; }
  virtual std::span<float> gradients_to_sum() { return gradients(); }
  // The same as loss_and_grad, and tells during the backward pass which gradients (floats of the table, from
  // begin to before end) are final, each once and in an order that the configuration fixes. An engine that
  // cannot says all of them at the end.
  using GradientsReady = FunctionRef<void(Index begin, Index end)>;
  virtual double loss_and_grad_in_parts(const BatchView& batch, double grad_scale, GradientsReady ready,
                                        const Exec& ex) {
    const double mean = loss_and_grad(batch, grad_scale, ex);
    ready(0, std::ssize(gradients()));
    return mean;
  }

  // One update at this rate from the gradients, which are zero afterwards in any case.
  virtual Optimizer::Update update(double lr, const Exec& ex) = 0;
  virtual void discard_gradients(const Exec& ex) = 0;

  // What the residual rule reports about sublayer s in the last loss_and_grad.
  virtual std::vector<TokenSeries> series(Index s) const = 0;

  // Bytes by name: parameters, gradients, activations, optimizer state.
  virtual std::vector<Arena::Entry> memory() const = 0;
  // Seconds that the matrix products of one step take alone, measured now; 0 where the engine cannot say.
  virtual double measure_floor(const Exec& /*ex*/) const { return 0; }
};

std::size_t total_bytes(const std::vector<Arena::Entry>& memory);

}  // namespace ddl
