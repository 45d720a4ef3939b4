#include "kernels/gemv.h"

#include <hwy/cache_control.h>

#include <algorithm>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gemv.cc"
#include <hwy/foreach_target.h>

#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ddl {
namespace HWY_NAMESPACE {

// Rows times tokens held in registers: twelve sums at most, because the smallest vector machines have sixteen
// registers, and the rows and a token's part need the rest.
constexpr Index kTokens = 4;
constexpr Index rows_for(Index tokens) { return tokens == 1 ? 4 : 3; }

// y[n][r] = x_n . w_r for R rows of w and G tokens. One chain of sums per pair, whatever R and G are, so that
// a token's result does not depend on its company. `ahead` is what the next call will read: it is asked for
// while this one computes, which keeps the memory busy across the short rows.
template <Index R, Index G, class T, class Out>
HWY_INLINE void Tile(Out* y, Index ldy, const T* HWY_RESTRICT x, const T* HWY_RESTRICT w, const T* ahead,
                     Index I) {
  const Full d;
  const Index lanes = static_cast<Index>(hn::Lanes(d));
  Vec sum[R][G];
  for (Index r = 0; r < R; ++r)
    for (Index g = 0; g < G; ++g) sum[r][g] = hn::Zero(d);
  Index i = 0;
  for (; i + lanes <= I; i += lanes) {
    if (ahead)
      for (Index r = 0; r < R; ++r) hwy::Prefetch(ahead + r * I + i);
    Vec row[R];
    for (Index r = 0; r < R; ++r) row[r] = LoadF(d, w + r * I + i);
    for (Index g = 0; g < G; ++g) {
      const Vec token = LoadF(d, x + g * I + i);
      for (Index r = 0; r < R; ++r) sum[r][g] = hn::MulAdd(row[r], token, sum[r][g]);
    }
  }
  for (Index r = 0; r < R; ++r)
    for (Index g = 0; g < G; ++g) {
      float total = hn::GetLane(hn::SumOfLanes(d, sum[r][g]));
      for (Index t = i; t < I; ++t) total += to_float(w[r * I + t]) * to_float(x[g * I + t]);
      y[g * ldy + r] = from_float<Out>(total);
    }
}

// Rows begin .. end for G tokens.
template <Index G, class T, class Out>
HWY_INLINE void Group(Out* y, Index ldy, const T* x, const T* w, Index begin, Index end, bool first,
                      Index I) {
  constexpr Index R = rows_for(G);
  Index o = begin;
  for (; o + R <= end; o += R)
    Tile<R, G, T, Out>(y + o, ldy, x, w + o * I, first && o + 2 * R <= end ? w + (o + R) * I : nullptr, I);
  for (; o < end; ++o) Tile<1, G, T, Out>(y + o, ldy, x, w + o * I, nullptr, I);
}

// The first group of tokens reads the rows from memory, later groups find them in the second-level cache; a
// group's tokens stay in the first.
template <class T, class Out>
HWY_INLINE void Gemv(Out* y_NO, const T* x_NI, const T* w_OI, Index begin, Index end, Index N, Index O,
                     Index I) {
  for (Index n = 0; n < N; n += kTokens) {
    Out* y = y_NO + n * O;
    const T* x = x_NI + n * I;
    switch (std::min(kTokens, N - n)) {
      case 1:
        Group<1>(y, O, x, w_OI, begin, end, n == 0, I);
        break;
      case 2:
        Group<2>(y, O, x, w_OI, begin, end, n == 0, I);
        break;
      case 3:
        Group<3>(y, O, x, w_OI, begin, end, n == 0, I);
        break;
      default:
        Group<4>(y, O, x, w_OI, begin, end, n == 0, I);
    }
  }
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

#include "kernels/isa.h"

namespace ddl {

HWY_EXPORT(GemvF32);
HWY_EXPORT(GemvBf16F32);
HWY_EXPORT(GemvBf16);

template <class T, class Out>
void gemv(Out* y_NO, const T* x_NI, const T* w_OI, Index N, Index O, Index I, const Exec& ex) {
  current_isa();
  // About 128 KiB of weights a claim: ten microseconds of reading, far more than a claim costs, and a part of
  // the second-level cache. A multiple of the rows of any tile.
  const Index bytes = std::max<Index>(1, I * static_cast<Index>(sizeof(T)));
  const Index grain = std::max<Index>(12, (Index{128} << 10) / bytes / 12 * 12);
  parallel_chunks(O, grain, ex, [&](Index begin, Index end) {
    if constexpr (std::is_same_v<T, float>)
      HWY_DYNAMIC_DISPATCH(GemvF32)(y_NO, x_NI, w_OI, begin, end, N, O, I);
    else if constexpr (std::is_same_v<Out, float>)
      HWY_DYNAMIC_DISPATCH(GemvBf16F32)(y_NO, x_NI, w_OI, begin, end, N, O, I);
    else
      HWY_DYNAMIC_DISPATCH(GemvBf16)(y_NO, x_NI, w_OI, begin, end, N, O, I);
  });
}

template void gemv(float*, const float*, const float*, Index, Index, Index, const Exec&);
template void gemv(float*, const bf16*, const bf16*, Index, Index, Index, const Exec&);
template void gemv(bf16*, const bf16*, const bf16*, Index, Index, Index, const Exec&);

}  // namespace ddl
#endif
