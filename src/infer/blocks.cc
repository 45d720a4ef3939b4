#include "infer/blocks.h"

#include <type_traits>

#include "core/profiler.h"
#include "kernels/embedding.h"
#include "kernels/rope_qknorm.h"
#include "kernels/swiglu.h"

namespace ddl {

template <class T>
Blocks<T>::Blocks(Model& model, Index most_tokens, Index positions, Linear product)
    : config(model.config()),
      most(most_tokens),
      context(positions),
      C(config.width),
      F(config.mlp_width()),
      H(config.heads),
      K(config.head_size()),
      V(config.vocab),
      multiply(product),
      residual(make_residual<T>(config, {1, most})),
      params(model.params().data()) {
  ParamTable table;
  layout = add_transformer_params(table, config);
  residual->add_params(table);
  DDL_CHECK(table.floats() == model.table().floats(), "{} and {} floats of parameters", table.floats(),
            model.table().floats());
  if constexpr (std::is_same_v<T, bf16>)
    params_T = model.bf16_copy();
  else
    params_T = params;
}

template <class T>
void Blocks<T>::plan(Arena& arena, Index slots) {
  const Index N = most;
  rope_TK = arena.take<float>("rotary table", context * K);
  token_N = arena.take<std::int32_t>("tokens", N);
  position_N = arena.take<std::int32_t>("tokens", N);
  x_NC = arena.take<float>("activations", N * C);
  context_NC = arena.take<T>("activations", N * C);
  h_NC = arena.take<T>("activations", N * C);
  qkv_N3C = arena.take<T>("activations", N * 3 * C);
  q_NC = arena.take<T>("activations", N * C);
  o_NC = arena.take<T>("activations", N * C);
  gate_up_N2F = arena.take<T>("activations", N * 2 * F);
  hidden_NF = arena.take<T>("activations", N * F);
  rstd_N2H = arena.take<float>("activations", N * 2 * H);
  residual->plan_decode(arena, slots);
}

template <class T>
void Blocks<T>::bind() {
  residual->bind(params, params_T, nullptr);
  fill_rope_table(rope_TK, context, K);
}

template <class T>
void Blocks<T>::forward(Index N, DecodeSpans spans, FunctionRef<void(Index)> attend, const Exec& ex) {
  embedding_fwd<float, float>(x_NC, params + layout.wte, token_N, N, V, C, ex);
  {
    const ProfileScope scope("residual", ex);
    residual->decode_open(context_NC, x_NC, spans, ex);
  }
  for (Index s = 0; s < config.sublayers(); ++s) {
    const TransformerLayout::Layer& p = layout.layers[s / 2];
    if (s % 2 == 0) {
      linear(qkv_N3C, context_NC, p.qkv, N, 3 * C, C, ex);
      {
        const ProfileScope scope("attention", ex);
        attend(s / 2);
      }
      linear(h_NC, o_NC, p.attn_out, N, C, C, ex);
    } else {
      linear(gate_up_N2F, context_NC, p.mlp_in, N, 2 * F, C, ex);
      {
        const ProfileScope scope("swiglu", ex);
        swiglu_fwd<T>(hidden_NF, gate_up_N2F, N, F, ex);
      }
      linear(h_NC, hidden_NF, p.mlp_out, N, C, F, ex);
    }
    const ProfileScope scope("residual", ex);
    residual->decode_advance(s, context_NC, h_NC, spans, ex);
  }
}

template <class T>
void Blocks<T>::rotate(T* k_nC, Index layer, Index begin, Index n, const Exec& ex) {
  const TransformerLayout::Layer& p = layout.layers[layer];
  rope_qknorm_fwd<T>(q_NC + begin * C, k_nC, rstd_N2H, qkv_N3C + begin * 3 * C, params + p.q_norm,
                     params + p.k_norm, rope_TK, position_N + begin, n, context, H, K, ex);
}

template <class T>
void Blocks<T>::linear(T* y, const T* x, Index weight, Index N, Index out, Index in, const Exec& ex) const {
  const ProfileScope scope("linear", ex);
  multiply(y, x, weights(weight), N, out, in, ex);
}

template struct Blocks<float>;
template struct Blocks<bf16>;

}  // namespace ddl
