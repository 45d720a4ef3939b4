// Forward passes over spans of sequences (Span: model/tokens.h), which the decoder and the scorer
// share: the sublayers of training, and the rule's formula with what it remembers of every slot.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/exec.h"
#include "core/function_ref.h"
#include "model/weights.h"
#include "torch/earlier_tokens.h"
#include "torch/flat_parameters.h"
#include "torch/residual_stream.h"
#include "torch/sublayers.h"
#include "torch/trainable.h"

namespace ddl {

class InferenceNetwork {
 public:
  InferenceNetwork(const Weights& weights, const TorchPlace& place, Index slots);

  const ModelConfig& config() const { return config_; }
  const at::Device& device() const { return parameters_.device(); }
  at::Tensor empty_cache(std::vector<std::int64_t> shape) const;  // of numbers like keys and values

  // What the head reads of every token.
  at::Tensor forward(const std::vector<std::int64_t>& token_N, Spans spans, KeysAndValues& past,
                     const Exec& ex);
  // Logits of these rows of a context, not yet scaled, in chunks: visit(i, z_RV) has those of rows i, i + 1, ...
  void logits(const at::Tensor& context_NC, const std::vector<std::int64_t>& rows,
              FunctionRef<void(Index, const at::Tensor&)> visit) const;
  void copy_slot(Index to, Index from) { history_.copy_slot(to, from); }

 private:
  const ModelConfig config_;
  const at::ScalarType activations_;
  FlatParameters parameters_;
  Sublayers sublayers_;
  SpanHistory history_;
  std::unique_ptr<ResidualStream> stream_;
};

}  // namespace ddl
