// Decoding with a wired rule. The rewrite and the channel compressor concern one token at a time, so they are
// the passes of training over whatever tokens there are; the two convolutions over tokens look back through
// rings that each slot keeps.
#include <cstring>

#include "kernels/gemv.h"
#include "kernels/short_conv.h"
#include "kernels/two_layer_gate.h"
#include "model/residual/look_back.h"
#include "model/residual/wired_rule_class.h"

namespace ddl {
namespace {

// body(span, threads). Where no span is more than a thread's share, spans go to one thread each; otherwise
// each has all threads to itself.
template <class Body>
void for_spans(DecodeSpans spans, const Exec& ex, const Body& body) {
  Index longest = 0;
  for (const DecodeSpan& span : spans) longest = std::max(longest, span.count);
  if (longest * ex.threads <= token_count(spans))
    parallel_for(std::ssize(spans), ex, [&](Index i) { body(i, Exec{}); });
  else
    for (Index i = 0; i < std::ssize(spans); ++i) body(i, ex);
}

}  // namespace

template <class T>
void WiredRule<T>::plan_decode(Arena& arena, Index slots) {
  plan(arena, false);
  slots_ = slots;
  if (wiring_.expand == Expand::kConv)
    embedding_ring_ = arena.take<float>("history: embeddings", slots * (config_.embed_kernel - 1) * C_);
  if (wiring_.read == Read::kToken)
    state_ring_ = arena.take<float>("history: expanded states",
                                    slots * (S_ + 1) * (config_.state_kernel - 1) * D_ * C_);
}

template <class T>
void WiredRule<T>::decode_copy(Index to_slot, Index from_slot) {
  const auto copy = [&](float* rings, Index floats) {
    if (rings)
      std::memcpy(rings + to_slot * floats, rings + from_slot * floats,
                  static_cast<std::size_t>(floats) * sizeof(float));
  };
  copy(embedding_ring_, (config_.embed_kernel - 1) * C_);
  copy(state_ring_, (S_ + 1) * (config_.state_kernel - 1) * D_ * C_);
}

// gate_fwd over any tokens: gemv, because its bits for a token do not depend on the others.
template <class T>
void WiredRule<T>::decode_gate(Index s, const T* context_NC, Index N, const Exec& ex) const {
  const Index G = config_.gate_hidden;
  gemv(gate_hidden_NG_, context_NC, params_T_ + stages_[s].gate_in, N, G, C_, ex);
  two_layer_gate_fwd(saved_[s].beta_N, gate_hidden_NG_, p(stages_[s].gate_w), p(stages_[s].gate_b), N, G, ex);
}

// step_fwd over spans.
template <class T>
void WiredRule<T>::decode_step(Index s, T* context_NC, const WriteFwd<T>* write, DecodeSpans spans,
                               const Exec& ex) {
  const Index N = token_count(spans);
  const ReadFwd<T> read = read_fwd(s, context_NC);
  if (wiring_.read == Read::kToken) {
    if (write) residual_fwd<T>(state_NDC_, write, nullptr, N, D_, C_, ex);
    const Index E = config_.state_kernel, ring_floats = (E - 1) * D_ * C_;
    const LookBack history({state_ring_ + s * ring_floats, (S_ + 1) * ring_floats, E - 1, D_ * C_},
                           state_NDC_, spans);
    for_spans(spans, ex, [&](Index i, const Exec& span_ex) {
      const float* before[kMaxTaps];
      const Index row = history.first_row(i);
      token_compress_span(x_in_NC_ + row * C_, state_NDC_ + row * D_ * C_, history.before(i, before),
                          p(stages_[s].compress), p(stages_[s].read), spans[i].count, D_, C_, E, span_ex);
    });
    history.remember(slots_);
    residual_fwd<T>(x_in_NC_, nullptr, &read, N, 1, C_, ex);
  } else {
    residual_fwd<T>(state_NDC_, write, &read, N, D_, C_, ex);
  }
  if (two_layer_ && s < S_) decode_gate(s, context_NC, N, ex);
}

template <class T>
void WiredRule<T>::decode_open(T* context_NC, const float* x_NC, DecodeSpans spans, const Exec& ex) {
  if (wiring_.expand == Expand::kConv) {
    const Index E = config_.embed_kernel;
    const LookBack history({embedding_ring_, (E - 1) * C_, E - 1, C_}, x_NC, spans);
    for_spans(spans, ex, [&](Index i, const Exec& span_ex) {
      const float* before[kMaxTaps];
      const Index row = history.first_row(i);
      embedding_conv_span(state_NDC_ + row * D_ * C_, x_NC + row * C_, history.before(i, before),
                          p(expand_w_), spans[i].count, D_, C_, E, span_ex);
    });
    history.remember(slots_);
  } else {
    repeat_fwd(state_NDC_, x_NC, token_count(spans), D_, C_, ex);
  }
  decode_step(0, context_NC, nullptr, spans, ex);
}

template <class T>
void WiredRule<T>::decode_advance(Index s, T* next_context_NC, const T* h_NC, DecodeSpans spans,
                                  const Exec& ex) {
  const WriteFwd<T> write = write_fwd(s, h_NC);
  decode_step(s + 1, next_context_NC, &write, spans, ex);
}

#define DDL_INSTANTIATE(T)                                                                   \
  template void WiredRule<T>::plan_decode(Arena&, Index);                                    \
  template void WiredRule<T>::decode_open(T*, const float*, DecodeSpans, const Exec&);       \
  template void WiredRule<T>::decode_advance(Index, T*, const T*, DecodeSpans, const Exec&); \
  template void WiredRule<T>::decode_copy(Index, Index);
DDL_INSTANTIATE(float)
DDL_INSTANTIATE(bf16)
#undef DDL_INSTANTIATE

}  // namespace ddl
