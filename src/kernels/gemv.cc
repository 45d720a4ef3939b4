#include "kernels/gemv.h"

#include <algorithm>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gemv.cc"
#include <hwy/foreach_target.h>

#include "kernels/dot_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ddl {
namespace HWY_NAMESPACE {

// y[g][r] = x_g . w_r   for G tokens and R rows of w, row_step rows apart
template <Index R, Index G, class T, class Out>
HWY_INLINE void Tile(Out* y, Index ldy, Index row_step, const T* HWY_RESTRICT x, const T* HWY_RESTRICT w,
                     Index I) {
  const Index ldw = row_step * I;
  const auto store = [&](Index g, Index r, float dot) { y[g * ldy + r * row_step] = from_float<Out>(dot); };
  if constexpr (R < G)  // the fewer of the two stay in registers
    DotTile<G, R>(x, I, w, ldw, I, store);
  else
    DotTile<R, G>(w, ldw, x, I, I, [&](Index r, Index g, float dot) { store(g, r, dot); });
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
