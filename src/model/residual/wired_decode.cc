// Decoding with a wired rule. The rewrite and the channel compressor concern one token at a time, so they are
// the passes of training over whatever tokens there are; the two convolutions over tokens look back through
// rings that each slot keeps.
#include <array>
#include <cstring>

#include "kernels/short_conv.h"
#include "model/residual/wired_rule_class.h"

namespace ddl {
namespace {

// body(span, its first row, threads). Short spans go to one thread each; a long one has all threads to
// itself.
template <class Body>
void for_spans(DecodeSpans spans, const Exec& ex, const Body& body) {
  constexpr Index kShort = 16;
  std::array<Index, 64> rows;
  bool spread = spans.size() > 1 && spans.size() <= rows.size();
  for (const DecodeSpan& span : spans) spread = spread && span.count < kShort;
  Index row = 0;
  if (!spread) {
    for (const DecodeSpan& span : spans) body(span, row, ex), row += span.count;
    return;
  }
  for (std::size_t i = 0; i < spans.size(); ++i) rows[i] = row, row += spans[i].count;
  parallel_for(std::ssize(spans), ex, [&](Index i) { body(spans[i], rows[i], Exec{}); });
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

// step_fwd over spans.
template <class T>
void WiredRule<T>::decode_step(Index s, T* context_NC, const WriteFwd<T>* write, DecodeSpans spans,
                               const Exec& ex) {
  const Index N = token_count(spans);
  const ReadFwd<T> read = read_fwd(s, context_NC);
  if (wiring_.read == Read::kToken) {
    if (write) residual_fwd<T>(state_NDC_, write, nullptr, N, D_, C_, ex);
    const Index E = config_.state_kernel, ring_floats = (E - 1) * D_ * C_;
    for_spans(spans, ex, [&](const DecodeSpan& span, Index row, const Exec& span_ex) {
      token_compress_span(x_in_NC_ + row * C_, state_ring_ + (span.slot * (S_ + 1) + s) * ring_floats,
                          state_NDC_ + row * D_ * C_, p(stages_[s].compress), p(stages_[s].read),
                          span.position, span.count, D_, C_, E, span_ex);
    });
    residual_fwd<T>(x_in_NC_, nullptr, &read, N, 1, C_, ex);
  } else {
    residual_fwd<T>(state_NDC_, write, &read, N, D_, C_, ex);
  }
  if (two_layer_ && s < S_) gate_fwd(s, context_NC, N, ex);
}

template <class T>
void WiredRule<T>::decode_open(T* context_NC, const float* x_NC, DecodeSpans spans, const Exec& ex) {
  if (wiring_.expand == Expand::kConv) {
    const Index E = config_.embed_kernel;
    for_spans(spans, ex, [&](const DecodeSpan& span, Index row, const Exec& span_ex) {
      embedding_conv_span(state_NDC_ + row * D_ * C_, embedding_ring_ + span.slot * (E - 1) * C_,
                          x_NC + row * C_, p(expand_w_), span.position, span.count, D_, C_, E, span_ex);
    });
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
