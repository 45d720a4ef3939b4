// The parts of a fused rule (model/residual/fused_rule.h) in ATen's operations: how its state starts and is read, and the
// branches that steer its write. x is [B, T, C], X is [B, T, D, C], both f32.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

#include "model/residual/fused_rule.h"
#include "torch/earlier_tokens.h"
#include "torch/flat_parameters.h"

namespace ddl {

// What a fused rule is; empty where the rule is of another kind.
std::optional<FusedSpec> fused_spec(const ModelConfig& config);

class FusedFormulas {
 public:
  FusedFormulas(const ModelConfig& config, FusedSpec spec, FlatParameters& parameters,
                EarlierTokens& earlier = whole_sequences());

  const FusedSpec& spec() const { return spec_; }
  at::Tensor expand(const at::Tensor& x) const;
  at::Tensor read(Index s, const at::Tensor& X) const;  // x_in in front of sublayer s, S being the head
  at::Tensor mix(Index s) const;  // [D, C] of the channel compressor, folded where it is a convolution
  at::Tensor branch(Index s, std::size_t i, const at::Tensor& x_in,
                    const at::Tensor& context) const;  // [B, T, rows]

  // "transformer.h.0.ddl_attn.beta.weight" and the like: of branch i in front of sublayer s.
  std::string branch_name(Index s, std::size_t i, const std::string& ending) const;
  std::string norm_name(Index s) const;

 private:
  std::string compressor(Index s) const;

  const FusedSpec spec_;
  const Index S_;
  FlatParameters& parameters_;
  EarlierTokens& earlier_;
};

}  // namespace ddl
