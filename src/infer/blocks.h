// The Transformer's blocks over the tokens of one pass, for those who keep keys, values and residual states
// from pass to pass: the decoder and the forward pass over trees. They differ in how a matrix product is cut
// and in where attention finds its keys, and bring both.
#pragma once

#include "core/function_ref.h"
#include "model/layout.h"
#include "model/model.h"
#include "model/residual/residual.h"

namespace ddl {

template <class T>
struct Blocks {
  using Linear = void (*)(T* y_NO, const T* x_NI, const T* w_OI, Index N, Index O, Index I, const Exec& ex);

  // `most`: tokens of a pass; positions are below `context`.
  Blocks(Model& model, Index most, Index context, Linear multiply);
  void plan(Arena& arena, Index slots);
  // After the last plan().
  void bind();

  // context_NC of the tokens in token_N at the positions in position_N. attend(layer) makes o_NC of qkv_N3C.
  void forward(Index N, DecodeSpans spans, FunctionRef<void(Index layer)> attend, const Exec& ex);
  // Of n tokens from row `begin` on, queries (in q_NC, at the same rows) and keys (in k_nC), normalised and
  // rotated.
  void rotate(T* k_nC, Index layer, Index begin, Index n, const Exec& ex);

  const T* weights(Index offset) const { return params_T + offset; }

  const ModelConfig config;
  const Index most, context, C, F, H, K, V;
  const Linear multiply;
  const std::unique_ptr<Residual<T>> residual;
  TransformerLayout layout;
  const float* const params;
  const T* params_T = nullptr;

  float* rope_TK = nullptr;
  std::int32_t *token_N = nullptr, *position_N = nullptr;
  T *context_NC = nullptr, *qkv_N3C = nullptr, *q_NC = nullptr, *o_NC = nullptr;

 private:
  void linear(T* y, const T* x, Index weight, Index N, Index out, Index in, const Exec& ex) const;
  float* x_NC = nullptr;
  T *h_NC = nullptr, *gate_up_N2F = nullptr, *hidden_NF = nullptr;
  float* rstd_N2H = nullptr;
};

extern template struct Blocks<float>;
extern template struct Blocks<bf16>;

}  // namespace ddl
