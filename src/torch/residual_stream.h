// The residual stream of the torch engine, between sublayers that autograd differentiates. There are three:
//   verbs      the rule's own verbs (model/residual/rule.h), as the native engine calls them. On the CPU, any rule.
//   kernels    the fused CUDA kernels. On a GPU, for the additive rule and the paper's family with one-layer gates.
//   formulas   the rule written in ATen's operations, differentiated by autograd. On a GPU, for all other rules.
// The first two have backward passes of their own and walk the state back; formulas keep every state.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "core/arena.h"
#include "core/exec.h"
#include "model/token_series.h"
#include "model/trainable.h"
#include "torch/cuda/kernels.h"
#include "torch/earlier_tokens.h"
#include "torch/flat_parameters.h"

namespace ddl {

class ResidualStream {
 public:
  virtual ~ResidualStream() = default;

  // As the verbs: x_BTC is f32, h and the contexts have the type of activations. A pass begins with start() and is
  // differentiated, if at all, before the next one begins.
  virtual at::Tensor start(const at::Tensor& x_BTC) = 0;
  virtual at::Tensor write_and_read(Index s, const at::Tensor& h_BTC) = 0;

  virtual std::vector<TokenSeries> series(Index /*s*/) const { return {}; }
  virtual std::vector<Arena::Entry> memory() const { return {}; }
  virtual void use(const Exec& /*ex*/) {}  // for the passes that follow
};

// A stream with backward passes of its own. Tensors are contiguous, and no graph is recorded.
class ManualStream : public ResidualStream {
 public:
  at::Tensor start(const at::Tensor& x_BTC) final;
  at::Tensor write_and_read(Index s, const at::Tensor& h_BTC) final;

  virtual at::Tensor start_forward(const at::Tensor& x_BTC) = 0;
  virtual at::Tensor write_forward(Index s, const at::Tensor& h_BTC) = 0;
  // What a context's gradient gives: that of h, or of x. Gradients of the rule's parameters are added in passing.
  struct Saved {
    at::Tensor input, context;
  };
  virtual at::Tensor start_backward(const at::Tensor& dcontext_BTC, const Saved& saved) = 0;
  virtual at::Tensor write_backward(Index s, const at::Tensor& dcontext_BTC, const Saved& saved) = 0;
};

struct StreamShape {
  BatchShape batch;
  at::ScalarType activations = at::kFloat;  // or bf16
};

// `weights` is where the parameters lie, on the CPU.
std::unique_ptr<ResidualStream> make_verb_stream(const Weights& weights, const FlatParameters& parameters,
                                                 const StreamShape& shape, const Exec& ex);
// Of any tokens, as `earlier` has them. Throws UserError where nobody has written the rule's formula.
std::unique_ptr<ResidualStream> make_formula_stream(const ModelConfig& config, FlatParameters& parameters,
                                                    at::ScalarType activations,
                                                    EarlierTokens& earlier = whole_sequences());
// Null where there is no kernel for the rule.
std::unique_ptr<ResidualStream> make_kernel_stream(const ModelConfig& config, FlatParameters& parameters,
                                                   const StreamShape& shape, const cuda::Kernels& kernels);

}  // namespace ddl
