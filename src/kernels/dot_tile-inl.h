// Dot products of A rows with B rows at once, in registers. Included once per instruction set, as simd-inl.h.
#if defined(DDL_KERNELS_DOT_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DDL_KERNELS_DOT_TILE_INL_H_
#undef DDL_KERNELS_DOT_TILE_INL_H_
#else
#define DDL_KERNELS_DOT_TILE_INL_H_
#endif

#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ddl {
namespace HWY_NAMESPACE {

// put(a, b, x_a . y_b)   for rows of n numbers, row a of x at x + a * ld_x
// The order of each sum does not depend on A and B, so a result does not depend on the rows next to it. The B rows
// of y are held in registers while the A rows of x pass: callers that fill the registers pass the fewer rows as y.
template <Index A, Index B, class X, class Y, class Put>
HWY_INLINE void DotTile(const X* HWY_RESTRICT x, Index ld_x, const Y* HWY_RESTRICT y, Index ld_y, Index n,
                        const Put& put) {
  const Full d;
  const Index lanes = static_cast<Index>(hn::Lanes(d));
  Vec sum[A][B];
  for (Index a = 0; a < A; ++a)
    for (Index b = 0; b < B; ++b) sum[a][b] = hn::Zero(d);
  Index i = 0;
  for (; i + lanes <= n; i += lanes) {
    Vec held[B];
    for (Index b = 0; b < B; ++b) held[b] = LoadF(d, y + b * ld_y + i);
    for (Index a = 0; a < A; ++a) {
      const Vec passing = LoadF(d, x + a * ld_x + i);
      for (Index b = 0; b < B; ++b) sum[a][b] = hn::MulAdd(passing, held[b], sum[a][b]);
    }
  }
  for (Index a = 0; a < A; ++a)
    for (Index b = 0; b < B; ++b) {
      float total = hn::GetLane(hn::SumOfLanes(d, sum[a][b]));
      for (Index t = i; t < n; ++t) total += to_float(x[a * ld_x + t]) * to_float(y[b * ld_y + t]);
      put(a, b, total);
    }
}

}  // namespace HWY_NAMESPACE
}  // namespace ddl
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
