// Embedding, attention, MLP and head of the torch engine, by ATen's operations. Parameters are f32; where activations
// are bf16, products take them rounded (the native engine's bf16, PyTorch's autocast).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "model/config.h"
#include "model/trainable.h"
#include "torch/cuda/kernels.h"
#include "torch/flat_parameters.h"

namespace ddl {

// Keys and values of sequences: how the N tokens of a pass attend to them, themselves included.
class KeysAndValues {
 public:
  virtual ~KeysAndValues() = default;
  virtual at::Tensor attend(Index layer, const at::Tensor& q_NHK, const at::Tensor& k_NHK,
                            const at::Tensor& v_NHK) = 0;
};

class Sublayers {
 public:
  // Of tokens that continue sequences: B is 1, T is N.
  struct Continued {
    at::Tensor rope_NK;  // rope_at() their positions
    KeysAndValues& past;
  };

  // kernels: the CUDA kernels for RoPE + QK-norm and SwiGLU; null: ATen's operations.
  Sublayers(const ModelConfig& config, FlatParameters& parameters, at::ScalarType activations,
            Index positions, const cuda::Kernels* kernels);

  at::Tensor embed(const at::Tensor& token_BT) const;  // f32
  // h of sublayer s. As the configuration says, what backward needs is computed again instead of kept.
  at::Tensor forward(Index s, const at::Tensor& context_BTC, const Continued* continued = nullptr) const;
  at::Tensor rope_at(const at::Tensor& position_N) const;
  at::Tensor logits(const at::Tensor& context_RC) const;  // f32, not yet scaled

  // The mean loss over the N rows' targets. With grad_scale other than 0 also the gradient of grad_scale times it:
  // that of the context is returned through dcontext_NC, that of the embedding is added to its own. The logits of a
  // whole batch never exist.
  double loss(const at::Tensor& context_NC, const at::Tensor& target_N, const TokenScores& scores,
              double grad_scale, at::Tensor* dcontext_NC) const;

  at::Tensor attention(Index layer, const at::Tensor& context_BTC,
                       const Continued* continued = nullptr) const;
  at::Tensor mlp(Index layer, const at::Tensor& context_BTC) const;

 private:
  struct Layer {
    at::Tensor qkv, q_norm, k_norm, out;
    at::Tensor gate_up, down;
  };
  at::Tensor linear(const at::Tensor& x, const at::Tensor& w) const;
  at::Tensor rotated_and_normed(const at::Tensor& x_BTHK, const at::Tensor& w_K,
                                const at::Tensor& rope_TK) const;

  const ModelConfig config_;
  const at::ScalarType activations_;
  const cuda::Kernels* const kernels_;
  at::Tensor wte_, head_, wte_gradient_, rope_TK_;
  std::vector<Layer> layers_;
};

}  // namespace ddl
