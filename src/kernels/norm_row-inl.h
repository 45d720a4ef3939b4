// RMSNorm of one token's row, for kernels that have the row in the first-level cache anyway. Included once per
// instruction set, like simd-inl.h.
#if defined(DDL_KERNELS_NORM_ROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DDL_KERNELS_NORM_ROW_INL_H_
#undef DDL_KERNELS_NORM_ROW_INL_H_
#else
#define DDL_KERNELS_NORM_ROW_INL_H_
#endif

#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ddl {
namespace HWY_NAMESPACE {

// |x|^2
template <class T>
HWY_INLINE float SquaredNorm(const T* x, Index C) {
  return Sum(C, [=](auto d, Index i) HWY_ATTR {
    const auto v = LoadF(d, x + i);
    return hn::Mul(v, v);
  });
}

// 1 / sqrt(mean(x^2) + eps)
template <class T>
HWY_INLINE float ReciprocalRms(const T* x, float eps, Index C) {
  return 1 / std::sqrt(SquaredNorm(x, C) / static_cast<float>(C) + eps);
}

// y = x rstd w, handed to use(tag, i, y) piece by piece; every element once, in order. Returns rstd.
template <class Use>
HWY_INLINE float NormRowTo(const float* HWY_RESTRICT x, const float* HWY_RESTRICT w, float eps, Index C,
                           const Use& use) {
  const float rstd = ReciprocalRms(x, eps, C);
  ForEach(C, [&](auto d, Index i) HWY_ATTR {
    use(d, i, hn::Mul(hn::Mul(hn::LoadU(d, x + i), hn::Set(d, rstd)), hn::LoadU(d, w + i)));
  });
  return rstd;
}

template <class T>
HWY_INLINE float NormRow(T* HWY_RESTRICT y, const float* HWY_RESTRICT x, const float* HWY_RESTRICT w,
                         float eps, Index C) {
  return NormRowTo(x, w, eps, C, [&](auto d, Index i, auto v) HWY_ATTR { StoreF(v, d, y + i); });
}

// dx = rstd (w dy - x rstd^2 mean(w dy x)), handed to use(tag, i, dx) in the same way        dw += dy x rstd
template <class Use>
HWY_INLINE void NormRowBackward(float* HWY_RESTRICT dw, const float* dy, const float* x,
                                const float* HWY_RESTRICT w, float rstd, Index C, const Use& use) {
  const float mean =
      Sum(C,
          [&](auto d, Index i) HWY_ATTR {
            return hn::Mul(hn::Mul(hn::LoadU(d, dy + i), hn::LoadU(d, w + i)), hn::LoadU(d, x + i));
          }) /
      static_cast<float>(C);
  const float pull = rstd * rstd * rstd * mean;
  ForEach(C, [&](auto d, Index i) HWY_ATTR {
    const auto xv = hn::LoadU(d, x + i);
    const auto scaled = hn::Mul(hn::LoadU(d, dy + i), hn::Set(d, rstd));
    hn::StoreU(hn::MulAdd(scaled, xv, hn::LoadU(d, dw + i)), d, dw + i);
    use(d, i, hn::NegMulAdd(hn::Set(d, pull), xv, hn::Mul(scaled, hn::LoadU(d, w + i))));
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace ddl
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
