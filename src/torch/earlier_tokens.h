// What comes before a token, for the rules' convolutions over tokens (the embedding convolution EC, the token
// compressor TC).
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <vector>

#include "model/tokens.h"

namespace ddl {

class EarlierTokens {
 public:
  virtual ~EarlierTokens() = default;
  // For back = 0 .. taps - 1, the rows of x_BT... that many tokens earlier: x itself first, zeros where a
  // sequence has not begun. `place` tells a model's convolutions apart.
  virtual std::vector<at::Tensor> rows(Index place, const at::Tensor& x, Index taps) = 0;
};

EarlierTokens& whole_sequences();  // B of them, T tokens each

// Spans of sequences, one after another in x_1N..., whose last rows are remembered by slot from pass to pass.
class SpanHistory final : public EarlierTokens {
 public:
  // most_taps: of the longest convolution.
  SpanHistory(Index slots, Index most_taps, const at::Device& device);
  void begin(Spans spans);  // of the pass that follows
  std::vector<at::Tensor> rows(Index place, const at::Tensor& x, Index taps) override;
  void copy_slot(Index to, Index from);

 private:
  const Index slots_, backs_;  // backs: how many rows of a slot are remembered
  const at::Device device_;
  std::map<Index, at::Tensor>
      remembered_;  // by place: the row `back` tokens before a slot's end is slot * backs + back - 1
  // Rows of what is remembered, this pass's rows and a row of zeros, one after another:
  std::vector<at::Tensor> source_N_;  // by back - 1: what each token sees
  at::Tensor kept_;                   // what is remembered afterwards
};

}  // namespace ddl
