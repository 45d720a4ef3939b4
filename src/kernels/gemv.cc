#include "kernels/gemv.h"

#include <algorithm>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gemv.cc"
#include <hwy/foreach_target.h>

#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ddl {
namespace HWY_NAMESPACE {

// y[g][r] = x_g . w_r   for G tokens and R rows of w, row_step rows apart
// The order of each sum does not depend on R and G, so a token's result does not depend on the other tokens.
template <Index R, Index G, class T, class Out>
HWY_INLINE void Tile(Out* y, Index ldy, Index row_step, const T* HWY_RESTRICT x, const T* HWY_RESTRICT w,
                     Index I) {
  const Full d;
  const Index lanes = static_cast<Index>(hn::Lanes(d)), ldw = row_step * I;
  Vec sum[R][G];
  for (Index r = 0; r < R; ++r)
    for (Index g = 0; g < G; ++g) sum[r][g] = hn::Zero(d);
  Index i = 0;
  for (; i + lanes <= I; i += lanes) {
    if constexpr (R < G) {  // keep the fewer of the two in registers
      Vec row[R];
      for (Index r = 0; r < R; ++r) row[r] = LoadF(d, w + r * ldw + i);
      for (Index g = 0; g < G; ++g) {
        const Vec token = LoadF(d, x + g * I + i);
        for (Index r = 0; r < R; ++r) sum[r][g] = hn::MulAdd(row[r], token, sum[r][g]);
      }
    } else {
      Vec token[G];
      for (Index g = 0; g < G; ++g) token[g] = LoadF(d, x + g * I + i);
      for (Index r = 0; r < R; ++r) {
        const Vec row = LoadF(d, w + r * ldw + i);
        for (Index g = 0; g < G; ++g) sum[r][g] = hn::MulAdd(row, token[g], sum[r][g]);
      }
    }
  }
  for (Index r = 0; r < R; ++r)
    for (Index g = 0; g < G; ++g) {
      float total = hn::GetLane(hn::SumOfLanes(d, sum[r][g]));
      for (Index t = i; t < I; ++t) total += to_float(w[r * ldw + t]) * to_float(x[g * I + t]);
      y[g * ldy + r * row_step] = from_float<Out>(total);
    }
}

// Rows begin .. end for G tokens. The rows of a tile are far apart, so that the memory is read in R long
// streams: neighbouring rows, which are one stream, get two thirds of the bandwidth (measured, Zen 3).
template <Index G, class T, class Out>
HWY_INLINE void Group(Out* y, Index ldy, const T* x, const T* w, Index begin, Index end, Index I) {
  constexpr Index R = gemv_rows(G);
  const Index per_stream = (end - begin) / R;
  for (Index o = begin; o < begin + per_stream; ++o)
    Tile<R, G, T, Out>(y + o, ldy, per_stream, x, w + o * I, I);
  for (Index o = begin + R * per_stream; o < end; ++o) Tile<1, G, T, Out>(y + o, ldy, 1, x, w + o * I, I);
}

// The first group of tokens reads the rows from memory, later groups find them in the second-level cache; a
// group's tokens stay in the first.
template <class T, class Out>
HWY_INLINE void Gemv(Out* y_NO, const T* x_NI, const T* w_OI, Index begin, Index end, Index N, Index O,
                     Index I) {
  static_assert(kGroup == kGemvGroup);
  ForGroups(N,
            [&](Index n, auto G) HWY_ATTR { Group<G>(y_NO + n * O, O, x_NI + n * I, w_OI, begin, end, I); });
}

void GemvF32(float* y, const float* x, const float* w, Index begin, Index end, Index N, Index O, Index I) {
  Gemv(y, x, w, begin, end, N, O, I);
}
void GemvBf16F32(float* y, const bf16* x, const bf16* w, Index begin, Index end, Index N, Index O, Index I) {
  Gemv(y, x, w, begin, end, N, O, I);
}
void GemvBf16(bf16* y, const bf16* x, const bf16* w, Index begin, Index end, Index N, Index O, Index I) {
  Gemv(y, x, w, begin, end, N, O, I);
}

}  // namespace HWY_NAMESPACE
}  // namespace ddl
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace ddl {

HWY_EXPORT(GemvF32);
HWY_EXPORT(GemvBf16F32);
HWY_EXPORT(GemvBf16);

template <class T, class Out>
void gemv(Out* y_NO, const T* x_NI, const T* w_OI, Index N, Index O, Index I, const Exec& ex) {
  if (N == 0) return;
  // Long streams want large chunks of rows; with more than one group of tokens a chunk must stay in the
  // second-level cache. Every thread gets the same number of chunks.
  const Index claim = (N <= kGemvGroup ? Index{256} : Index{128}) << 10,
              rows = gemv_rows(std::min(N, kGemvGroup));
  const Index bytes = O * I * static_cast<Index>(sizeof(T));
  const Index claims = std::max<Index>(1, round_up(ceil_div(bytes, claim), ex.threads));
  const Index grain = std::max(rows, round_up(ceil_div(O, claims), rows));
  parallel_chunks(O, grain, ex, [&](Index begin, Index end) {
    if constexpr (std::is_same_v<T, float>)
      DDL_DISPATCH(GemvF32, y_NO, x_NI, w_OI, begin, end, N, O, I);
    else if constexpr (std::is_same_v<Out, float>)
      DDL_DISPATCH(GemvBf16F32, y_NO, x_NI, w_OI, begin, end, N, O, I);
    else
      DDL_DISPATCH(GemvBf16, y_NO, x_NI, w_OI, begin, end, N, O, I);
  });
}

template void gemv(float*, const float*, const float*, Index, Index, Index, const Exec&);
template void gemv(float*, const bf16*, const bf16*, Index, Index, Index, const Exec&);
template void gemv(bf16*, const bf16*, const bf16*, Index, Index, Index, const Exec&);

}  // namespace ddl
#endif
