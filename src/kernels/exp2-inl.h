// 2^z for softmax. Included once per instruction set, like simd-inl.h.
#if defined(DDL_KERNELS_EXP2_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DDL_KERNELS_EXP2_INL_H_
#undef DDL_KERNELS_EXP2_INL_H_
#else
#define DDL_KERNELS_EXP2_INL_H_
#endif

#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ddl {
namespace HWY_NAMESPACE {

constexpr float kLog2E = 1.44269504088896340736f;
constexpr float kLn2 = 0.69314718055994530942f;

// 2^z for z <= 128, within 2 ulp; 0 where the result would not be a normal number (z < -126); NaN stays NaN.
//
// z = n + f with n the nearest integer, so 2^z = 2^n 2^f with |f| <= 1/2. Adding 1.5 * 2^23 rounds z to n and
// leaves n in the low bits of the sum, ready to be shifted into an exponent: no conversion is needed. 2^f is
// the polynomial of degree 6 with the smallest largest relative error (1.6e-8, an eighth of an f32 epsilon).
template <class D>
HWY_INLINE hn::Vec<D> QuickExp2(D d, hn::Vec<D> z) {
  const hn::Rebind<std::int32_t, D> di;
  const auto magic = hn::Set(d, 12582912.0f);
  const auto shifted = hn::Add(z, magic);
  const auto f = hn::Sub(z, hn::Sub(shifted, magic));
  auto p = hn::MulAdd(f, hn::Set(d, 1.534581242594868e-4f), hn::Set(d, 1.3399930903688073e-3f));
  p = hn::MulAdd(p, f, hn::Set(d, 9.618489071726799e-3f));
  p = hn::MulAdd(p, f, hn::Set(d, 5.550328642129898e-2f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.24022646248340607f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.6931471824645996f));
  p = hn::MulAdd(p, f, hn::Set(d, 1.0f));
  const auto exponent = hn::Add(hn::ShiftLeft<23>(hn::BitCast(di, shifted)), hn::Set(di, 127 << 23));
  return hn::IfThenZeroElse(hn::Lt(z, hn::Set(d, -126.0f)), hn::Mul(p, hn::BitCast(d, exponent)));
}

// 1 / (1 + exp(-x)), in half the time of a library exponential. For x < -87 it stays at 1e-38 instead of
// falling to 0; the relative error grows like |x| half ulps, the rounding of the exponent.
template <class D>
HWY_INLINE hn::Vec<D> QuickSigmoid(D d, hn::Vec<D> x) {
  const auto one = hn::Set(d, 1.0f);
  const auto z = hn::Min(hn::Set(d, 126.0f), hn::Mul(x, hn::Set(d, -kLog2E)));
  return hn::Div(one, hn::Add(one, QuickExp2(d, z)));
}

// The largest of term(tag, i) over i in [0, n); `low` where n = 0.
template <class Term>
HWY_INLINE float Largest(Index n, float low, const Term& term) {
  const Full d;
  const Index lanes = static_cast<Index>(hn::Lanes(d));
  Vec m0 = hn::Set(d, low), m1 = m0, m2 = m0, m3 = m0;
  Index i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    m0 = hn::Max(m0, term(d, i));
    m1 = hn::Max(m1, term(d, i + lanes));
    m2 = hn::Max(m2, term(d, i + 2 * lanes));
    m3 = hn::Max(m3, term(d, i + 3 * lanes));
  }
  for (; i + lanes <= n; i += lanes) m0 = hn::Max(m0, term(d, i));
  float largest = hn::GetLane(hn::MaxOfLanes(d, hn::Max(hn::Max(m0, m1), hn::Max(m2, m3))));
  for (; i < n; ++i) largest = HWY_MAX(largest, hn::GetLane(term(One(), i)));
  return largest;
}

}  // namespace HWY_NAMESPACE
}  // namespace ddl
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
