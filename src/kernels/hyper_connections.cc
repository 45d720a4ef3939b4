#include "kernels/hyper_connections.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/isa.h"
#include "kernels/ordered_sums.h"
#include "kernels/residual_pass.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/hyper_connections.cc"
#include <hwy/foreach_target.h>
// After foreach_target, so that each instruction set gets its own copy.
#include "kernels/dot_tile-inl.h"
#include "kernels/norm_row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ddl {
namespace HWY_NAMESPACE {

// Tokens whose states stay in the second-level cache while the rows of weights go by.
inline constexpr Index kStreamTile = 16;

// body(i, G) over [0, n) by twos, G an integral_constant.
template <class Body>
HWY_INLINE void ForPairs(Index n, const Body& body) {
  Index i = 0;
  for (; i + 2 <= n; i += 2) body(i, std::integral_constant<Index, 2>());
  if (i < n) body(i, std::integral_constant<Index, 1>());
}

// body(D) with D as a constant where it is the usual number of streams, so that arrays of D vectors stay in
// registers.
template <class Body>
HWY_INLINE void WithStreams(Index D, const Body& body) {
  if (D == 4)
    body(std::integral_constant<Index, 4>());
  else
    body(D);
}

// out[a * ld_out + b] += x_a . y_b,  row a of x at x + a * ld_x
template <class T>
HWY_INLINE void AddDots(float* out, Index ld_out, const T* x, Index ld_x, Index rows_x, const float* y,
                        Index ld_y, Index rows_y, Index C) {
  ForGroups(rows_x, [&](Index a, auto A) HWY_ATTR {
    ForPairs(rows_y, [&](Index b, auto B) HWY_ATTR {
      DotTile<A, B>(x + a * ld_x, ld_x, y + b * ld_y, ld_y, C,
                    [&](Index i, Index j, float dot) { out[(a + i) * ld_out + b + j] += dot; });
    });
  });
}

// to_a += sum_b e_ab from_b,  e_ab = e[a * step_a + b * step_b], rows as above.
template <Index A, Index B>
HWY_INLINE void AddSomeRows(float* HWY_RESTRICT to, Index ld_to, const float* e, Index step_a, Index step_b,
                            const float* HWY_RESTRICT from, Index ld_from, Index C) {
  float own[A][B];  // a copy that no store can change, so that it stays in registers
  for (Index a = 0; a < A; ++a)
    for (Index b = 0; b < B; ++b) own[a][b] = e[a * step_a + b * step_b];
  ForEach(C, [&](auto tag, Index c) HWY_ATTR {
    hn::Vec<decltype(tag)> x[B];
    for (Index b = 0; b < B; ++b) x[b] = hn::LoadU(tag, from + b * ld_from + c);
    for (Index a = 0; a < A; ++a) {
      auto sum = hn::LoadU(tag, to + a * ld_to + c);
      for (Index b = 0; b < B; ++b) sum = hn::MulAdd(hn::Set(tag, own[a][b]), x[b], sum);
      hn::StoreU(sum, tag, to + a * ld_to + c);
    }
  });
}
HWY_INLINE void AddRows(float* to, Index ld_to, Index rows_to, const float* e, Index step_a, Index step_b,
                        const float* from, Index ld_from, Index rows_from, Index C) {
  ForGroups(rows_to, [&](Index a, auto A) HWY_ATTR {
    ForPairs(rows_from, [&](Index b, auto B) HWY_ATTR {
      AddSomeRows<A, B>(to + a * ld_to, ld_to, e + a * step_a + b * step_b, step_a, step_b,
                        from + b * ld_from, ld_from, C);
    });
  });
}

// Where the rows that stream i meets lie, and its dots among a token's.
struct StreamRows {
  Index rows, ld, stream, dots, dots_stream;
  StreamRows(const StreamMixer& mixer, Index D, Index C)
      : rows(mixer.rows()),
        ld(mixer.shares_rows() ? C : D * C),
        stream(mixer.shares_rows() ? 0 : C),
        dots(mixer.dots(D)),
        dots_stream(mixer.shares_rows() ? mixer.rows() : 0) {}
};

// Forward.

// X'_j = write_j h + sum_i mix_ij X_i; `to` may be `from`.
template <class T>
HWY_INLINE void WriteStreams(float* to, const float* from, const T* h, const float* numbers, Index D,
                             Index C) {
  const float* write = numbers + StreamNumbers{D}.write();
  const float* mix = numbers + StreamNumbers{D}.mix();
  WithStreams(D, [&](auto streams) HWY_ATTR {
    ForEach(C, [&](auto tag, Index c) HWY_ATTR {
      hn::Vec<decltype(tag)> x[kMaxStreams];
      for (Index i = 0; i < streams; ++i) x[i] = hn::LoadU(tag, from + i * C + c);
      const auto hv = LoadF(tag, h + c);
      for (Index j = 0; j < streams; ++j) {
        auto sum = hn::Mul(hn::Set(tag, write[j]), hv);
        for (Index i = 0; i < streams; ++i) sum = hn::MulAdd(hn::Set(tag, mix[i * streams + j]), x[i], sum);
        hn::StoreU(sum, tag, to + j * C + c);
      }
    });
  });
}

HWY_INLINE const float* SquaresOf(const StreamsLook& look, Index n, Index D) {
  return look.square_ND ? look.square_ND + n * D : nullptr;
}

// Dots, squares and numbers of `count` tokens from `first` on.
HWY_INLINE void LookAtStreams(const StreamsLook& look, const float* state_NDC, Index first, Index count,
                              Index D, Index C) {
  const StreamMixer& mixer = *look.mixer;
  const StreamRows at(mixer, D, C);
  const StreamNumbers numbers{D};
  const float* X = state_NDC + first * D * C;
  if (at.rows > 0) {
    float* dots = look.dots_NQ + first * at.dots;
    std::fill_n(dots, count * at.dots, 0.0f);
    for (Index i = 0; i < D; ++i)
      AddDots(dots + i * at.dots_stream, at.dots, X + i * C, D * C, count, look.w + i * at.stream, at.ld,
              at.rows, C);
    for (Index plane = 0; plane < count * D; ++plane)
      look.square_ND[first * D + plane] = SquaredNorm(X + plane * C, C);
  }
  for (Index n = first; n < first + count; ++n) {
    float* token = look.numbers_NK + n * numbers.count();
    mixer.forward({.D = D,
                   .C = C,
                   .extra = look.extra,
                   .dots = look.dots_NQ + n * at.dots,
                   .square_D = SquaresOf(look, n, D),
                   .read_D = token + numbers.read(),
                   .write_D = token + numbers.write(),
                   .mix_DD = token + numbers.mix()});
    for (Index i = 0; i < D; ++i) token[numbers.diagonal() + i] = token[numbers.mix() + i * (D + 1)];
  }
}

inline constexpr float kSumOfStreams[kMaxStreams] = {1, 1, 1, 1, 1, 1, 1, 1};
HWY_INLINE const float* ReadWeights(const StreamsLook& look, Index n, Index D) {
  return look.mixer ? look.numbers_NK + n * StreamNumbers{D}.count() + StreamNumbers{D}.read()
                    : kSumOfStreams;
}

// x_in = sum_i read_i X_i
HWY_INLINE void SumStreams(float* HWY_RESTRICT x_in, const float* HWY_RESTRICT X, const float* read, Index D,
                           Index C) {
  WithStreams(D, [&](auto streams) HWY_ATTR {
    ForEach(C, [&](auto tag, Index c) HWY_ATTR {
      auto sum = hn::Mul(hn::Set(tag, read[0]), hn::LoadU(tag, X + c));
      for (Index i = 1; i < streams; ++i)
        sum = hn::MulAdd(hn::Set(tag, read[i]), hn::LoadU(tag, X + i * C + c), sum);
      hn::StoreU(sum, tag, x_in + c);
    });
  });
}

// context = x_in * rstd * norm
template <class T>
HWY_INLINE void ReadStreams(const StreamsReadFwd<T>& r, const float* X, Index n, Index D, Index C) {
  float x_in[kMaxWidth];
  SumStreams(x_in, X, ReadWeights(r.look, n, D), D, C);
  r.rstd_N[n] = NormRow(r.context_NC + n * C, x_in, r.norm_C, r.norm_eps, C);
}

template <class T>
void StreamsForward(float* state_NDC, const StreamsWriteFwd<T>* write, const StreamsReadFwd<T>* read,
                    Index begin, Index end, Index D, Index C) {
  for (Index first = begin; first < end; first += kStreamTile) {
    const Index last = std::min(first + kStreamTile, end);
    if (write)
      for (Index n = first; n < last; ++n)
        WriteStreams(state_NDC + n * D * C, write->from_NDC + n * D * C, write->h_NC + n * C,
                     write->numbers_NK + n * StreamNumbers{D}.count(), D, C);
    if (!read) continue;
    if (read->look.mixer) LookAtStreams(read->look, state_NDC, first, last - first, D, C);
    for (Index n = first; n < last; ++n) ReadStreams(*read, state_NDC + n * D * C, n, D, C);
  }
}

void StreamsForwardF32(float* s, const StreamsWriteFwd<float>* w, const StreamsReadFwd<float>* r, Index b,
                       Index e, Index D, Index C) {
  StreamsForward(s, w, r, b, e, D, C);
}
void StreamsForwardBf16(float* s, const StreamsWriteFwd<bf16>* w, const StreamsReadFwd<bf16>* r, Index b,
                        Index e, Index D, Index C) {
  StreamsForward(s, w, r, b, e, D, C);
}

// Backward.

// Where one part of the tokens collects its share of the parameters' gradients.
struct StreamGradients {
  float *norm_C, *w, *extra;
};

// From dcontext to dx_in, then dread_i = X_i . dx_in and dX_i (+)= read_i dx_in.
template <class T>
HWY_INLINE void ReadStreamsBackward(float* HWY_RESTRICT dX, float* dread_D, const StreamsReadBwd<T>& r,
                                    float* HWY_RESTRICT dnorm_C, Index n, Index D, Index C) {
  const float* HWY_RESTRICT X = r.state_NDC + n * D * C;
  const float* HWY_RESTRICT dcontext = r.dcontext_NC + n * C;
  const float* read = ReadWeights(r.look, n, D);
  float x_in[kMaxWidth], dx_in[kMaxWidth];
  SumStreams(x_in, X, read, D, C);
  NormRowBackward(dnorm_C, dcontext, x_in, r.norm_C, r.rstd_N[n], C,
                  [&](auto tag, Index c, auto dx) HWY_ATTR { hn::StoreU(dx, tag, dx_in + c); });
  if (r.look.mixer) {
    std::fill_n(dread_D, D, 0.0f);
    AddDots(dread_D, 1, X, C, D, dx_in, 0, 1, C);
  }
  const bool fresh = r.dstate_mode == Write::kOverwrite;
  for (Index i = 0; i < D; ++i)
    ForEach(C, [&](auto tag, Index c) HWY_ATTR {
      const auto before = fresh ? hn::Zero(tag) : hn::LoadU(tag, dX + i * C + c);
      hn::StoreU(hn::MulAdd(hn::Set(tag, read[i]), hn::LoadU(tag, dx_in + c), before), tag, dX + i * C + c);
    });
}

// The numbers' path: through the mixer to dots and squares, then
//   dX_i += sum_r ddot_ir w_r + 2 dsquare_i X_i        dw_r += sum over tokens and streams of ddot_ir X_i
template <class T>
HWY_INLINE void LookBackward(float* dstate_NDC, const StreamsReadBwd<T>& r, const float (*dread)[kMaxStreams],
                             const StreamGradients& part, Index first, Index count, Index D, Index C) {
  const StreamMixer& mixer = *r.look.mixer;
  const StreamRows at(mixer, D, C);
  const StreamNumbers numbers{D};
  float ddots[kStreamTile * kMaxStreamDots], dsquare[kStreamTile * kMaxStreams];
  for (Index t = 0; t < count; ++t) {
    const Index n = first + t;
    const float* dnumbers = r.dnumbers_NK + n * numbers.count();
    mixer.backward({.D = D,
                    .C = C,
                    .extra = r.look.extra,
                    .dots = r.look.dots_NQ + n * at.dots,
                    .square_D = SquaresOf(r.look, n, D),
                    .dread_D = dread[t],
                    .dwrite_D = dnumbers + numbers.write(),
                    .dmix_DD = dnumbers + numbers.mix(),
                    .ddots = ddots + t * at.dots,
                    .dsquare_D = dsquare + t * D,
                    .dextra = part.extra});
  }
  if (at.rows == 0) return;
  const float* X = r.state_NDC + first * D * C;
  float* dX = dstate_NDC + first * D * C;
  for (Index plane = 0; plane < count * D; ++plane)
    ForEach(C, [&](auto tag, Index c) HWY_ATTR {
      const Index i = plane * C + c;
      hn::StoreU(hn::MulAdd(hn::Set(tag, 2 * dsquare[plane]), hn::LoadU(tag, X + i), hn::LoadU(tag, dX + i)),
                 tag, dX + i);
    });
  for (Index i = 0; i < D; ++i) {
    const float* e = ddots + i * at.dots_stream;
    AddRows(dX + i * C, D * C, count, e, at.dots, 1, r.look.w + i * at.stream, at.ld, at.rows, C);
    AddRows(part.w + i * at.stream, at.ld, at.rows, e, 1, at.dots, X + i * C, D * C, count, C);
  }
}

// With G_j = dX_j on entry:
//   dwrite_j = G_j . h       dmix_ij = X_i . G_j       dh = sum_j write_j G_j       dX_i = sum_j mix_ij G_j
template <class T>
HWY_INLINE void WriteStreamsBackward(float* dX, const StreamsWriteBwd<T>& w, Index n, Index D, Index C) {
  const StreamNumbers numbers{D};
  const float* write = w.numbers_NK + n * numbers.count() + numbers.write();
  const float* mix = w.numbers_NK + n * numbers.count() + numbers.mix();
  float* dnumbers = w.dnumbers_NK + n * numbers.count();
  std::fill_n(dnumbers, numbers.count(), 0.0f);
  AddDots(dnumbers + numbers.write(), 0, w.h_NC + n * C, 0, 1, dX, C, D, C);
  AddDots(dnumbers + numbers.mix(), D, w.from_NDC + n * D * C, C, D, dX, C, D, C);
  T* dh = w.dh_NC + n * C;
  WithStreams(D, [&](auto streams) HWY_ATTR {
    ForEach(C, [&](auto tag, Index c) HWY_ATTR {
      hn::Vec<decltype(tag)> g[kMaxStreams];
      for (Index j = 0; j < streams; ++j) g[j] = hn::LoadU(tag, dX + j * C + c);
      auto sum = hn::Zero(tag);
      for (Index j = 0; j < streams; ++j) sum = hn::MulAdd(hn::Set(tag, write[j]), g[j], sum);
      StoreF(sum, tag, dh + c);
      for (Index i = 0; i < streams; ++i) {
        auto dx = hn::Zero(tag);
        for (Index j = 0; j < streams; ++j) dx = hn::MulAdd(hn::Set(tag, mix[i * streams + j]), g[j], dx);
        hn::StoreU(dx, tag, dX + i * C + c);
      }
    });
  });
}

template <class T>
void StreamsBackward(float* dstate_NDC, const StreamsReadBwd<T>* read, const StreamsWriteBwd<T>* write,
                     const StreamGradients& part, Index begin, Index end, Index D, Index C) {
  float dread[kStreamTile][kMaxStreams];
  for (Index first = begin; first < end; first += kStreamTile) {
    const Index last = std::min(first + kStreamTile, end);
    if (read) {
      for (Index n = first; n < last; ++n)
        ReadStreamsBackward(dstate_NDC + n * D * C, dread[n - first], *read, part.norm_C, n, D, C);
      if (read->look.mixer) LookBackward(dstate_NDC, *read, dread, part, first, last - first, D, C);
    }
    if (write)
      for (Index n = first; n < last; ++n) WriteStreamsBackward(dstate_NDC + n * D * C, *write, n, D, C);
  }
}

void StreamsBackwardF32(float* ds, const StreamsReadBwd<float>* r, const StreamsWriteBwd<float>* w,
                        float* const* p, Index b, Index e, Index D, Index C) {
  StreamsBackward(ds, r, w, {p[0], p[1], p[2]}, b, e, D, C);
}
void StreamsBackwardBf16(float* ds, const StreamsReadBwd<bf16>* r, const StreamsWriteBwd<bf16>* w,
                         float* const* p, Index b, Index e, Index D, Index C) {
  StreamsBackward(ds, r, w, {p[0], p[1], p[2]}, b, e, D, C);
}

}  // namespace HWY_NAMESPACE
}  // namespace ddl
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ddl {
namespace {

HWY_EXPORT(StreamsForwardF32);
HWY_EXPORT(StreamsForwardBf16);
HWY_EXPORT(StreamsBackwardF32);
HWY_EXPORT(StreamsBackwardBf16);

void check_streams(const StreamMixer* mixer, Index D, Index C) {
  DDL_CHECK(D >= 1 && D <= kMaxStreams && C >= 1 && C <= kMaxWidth, "D={} C={}", D, C);
  DDL_CHECK(!mixer || mixer->dots(D) <= kMaxStreamDots, "{} dots", mixer->dots(D));
}

}  // namespace

// Where each gradient lies inside a part's row, in StreamGradients' order.
struct StreamPartLayout {
  Index w, extra, stride;
  StreamPartLayout(const StreamMixer* mixer, Index D, Index C)
      : w(round_up(C, 16)),
        extra(w + (mixer ? round_up(mixer->weights(D, C), 16) : 0)),
        stride(extra + (mixer ? round_up(mixer->extra_count(), 16) : 0)) {}
};

template <class T>
void streams_fwd(float* state_NDC, const StreamsWriteFwd<T>* write, const StreamsReadFwd<T>* read, Index N,
                 Index D, Index C, const Exec& ex) {
  check_streams(read ? read->look.mixer : nullptr, D, C);
  parallel_chunks(N, kTokensPerTask, ex, [&](Index begin, Index end) {
    if constexpr (std::is_same_v<T, float>)
      DDL_DISPATCH(StreamsForwardF32, state_NDC, write, read, begin, end, D, C);
    else
      DDL_DISPATCH(StreamsForwardBf16, state_NDC, write, read, begin, end, D, C);
  });
}

Index streams_bwd_scratch(const StreamMixer& mixer, Index D, Index C) {
  return kSumParts * StreamPartLayout(&mixer, D, C).stride;
}

template <class T>
void streams_bwd(float* dstate_NDC, const StreamsReadBwd<T>* read, const StreamsWriteBwd<T>* write,
                 float* scratch, Index N, Index D, Index C, const Exec& ex) {
  const StreamMixer* mixer = read ? read->look.mixer : nullptr;
  check_streams(mixer, D, C);
  const StreamPartLayout layout(mixer, D, C);
  parallel_for(kSumParts, ex, [&](Index p) {
    const Index begin = part_begin(N, p), end = part_begin(N, p + 1);
    if (begin == end) return;
    float* rows[3] = {};
    if (read) {
      float* row = scratch + p * layout.stride;
      std::memset(row, 0, static_cast<std::size_t>(layout.stride) * sizeof(float));
      rows[0] = row, rows[1] = row + layout.w, rows[2] = row + layout.extra;
    }
    if constexpr (std::is_same_v<T, float>)
      DDL_DISPATCH(StreamsBackwardF32, dstate_NDC, read, write, rows, begin, end, D, C);
    else
      DDL_DISPATCH(StreamsBackwardBf16, dstate_NDC, read, write, rows, begin, end, D, C);
  });
  if (!read) return;
  add_parts_in_order(read->dnorm_C, scratch, layout.stride, C, N, ex);
  if (!mixer) return;
  add_parts_in_order(read->dw, scratch + layout.w, layout.stride, mixer->weights(D, C), N, ex);
  add_parts_in_order(read->dextra, scratch + layout.extra, layout.stride, mixer->extra_count(), N, ex);
}

template void streams_fwd(float*, const StreamsWriteFwd<float>*, const StreamsReadFwd<float>*, Index, Index,
                          Index, const Exec&);
template void streams_fwd(float*, const StreamsWriteFwd<bf16>*, const StreamsReadFwd<bf16>*, Index, Index,
                          Index, const Exec&);
template void streams_bwd(float*, const StreamsReadBwd<float>*, const StreamsWriteBwd<float>*, float*, Index,
                          Index, Index, const Exec&);
template void streams_bwd(float*, const StreamsReadBwd<bf16>*, const StreamsWriteBwd<bf16>*, float*, Index,
                          Index, Index, const Exec&);

}  // namespace ddl
#endif  // HWY_ONCE
