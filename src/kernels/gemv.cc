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

// Rows times tokens held in registers: eight sums at most, because the smallest vector machines have sixteen
// registers and the loads need some.
constexpr Index kRows = 4, kTokens = 4;

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

// R rows for all tokens: the first group reads them from memory, later groups from the first-level cache.
template <Index R, class T, class Out>
HWY_INLINE void Rows(Out* y, Index ldy, const T* x, const T* w, const T* ahead, Index N, Index I) {
  for (Index n = 0; n < N; n += kTokens, ahead = nullptr) {
    Out* to = y + n * ldy;
    const T* from = x + n * I;
    switch (std::min(kTokens, N - n)) {
      case 1:
        Tile<R, 1>(to, ldy, from, w, ahead, I);
        break;
      case 2:
        Tile<R, 2>(to, ldy, from, w, ahead, I);
        break;
      case 3:
        Tile<R, 3>(to, ldy, from, w, ahead, I);
        break;
      default:
        Tile<R, 4>(to, ldy, from, w, ahead, I);
    }
  }
}

template <class T, class Out>
HWY_INLINE void Gemv(Out* y_NO, const T* x_NI, const T* w_OI, Index begin, Index end, Index N, Index O,
                     Index I) {
  Index o = begin;
  const auto run = [&](auto rows) HWY_ATTR {
    constexpr Index R = decltype(rows)::value;
    for (; o + R <= end; o += R)
      Rows<R>(y_NO + o, O, x_NI, w_OI + o * I, o + 2 * R <= end ? w_OI + (o + R) * I : nullptr, N, I);
  };
  if (N <= 2) run(std::integral_constant<Index, kRows>());
  run(std::integral_constant<Index, 2>());
  run(std::integral_constant<Index, 1>());
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
  // About 128 KiB of weights a claim: ten microseconds of reading, far more than a claim costs.
  const Index bytes = std::max<Index>(1, I * static_cast<Index>(sizeof(T)));
  const Index grain = std::max<Index>(4, (Index{128} << 10) / bytes / 4 * 4);
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
