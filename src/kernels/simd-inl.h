// What every vector kernel uses. Included once per instruction set by Highway's foreach_target: no include
// guard of the usual kind, everything inside HWY_NAMESPACE.
//
// A loop over n elements is written once, as a body that takes a vector tag and an offset; it runs on full
// vectors and then element by element on the rest. So any length and any alignment work, and nothing is read
// past the end.
#if defined(DDL_KERNELS_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DDL_KERNELS_SIMD_INL_H_
#undef DDL_KERNELS_SIMD_INL_H_
#else
#define DDL_KERNELS_SIMD_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "core/bf16.h"
#include "core/index.h"
#include "kernels/isa.h"

// Calls an exported kernel on the instruction set in use: DDL_DISPATCH(Kernel, arguments...). All kernels are
// called through this macro, so that DDL_ISA is obeyed whichever kernel comes first.
#ifndef DDL_DISPATCH
#define DDL_DISPATCH(kernel, ...) (::ddl::settle_isa(), HWY_DYNAMIC_DISPATCH(kernel)(__VA_ARGS__))
#endif

HWY_BEFORE_NAMESPACE();
namespace ddl {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Full = hn::ScalableTag<float>;
using One = hn::CappedTag<float, 1>;
using Vec = hn::Vec<Full>;

// A vector of floats from memory that holds f32 or bf16, and back.
template <class D>
HWY_INLINE hn::Vec<D> LoadF(D d, const float* p) {
  return hn::LoadU(d, p);
}
template <class D>
HWY_INLINE hn::Vec<D> LoadF(D d, const bf16* p) {
  const hn::Rebind<std::uint16_t, D> d16;
  const hn::Rebind<std::uint32_t, D> d32;
  const auto half = hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(p));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, half)));
}

template <class D>
HWY_INLINE void StoreF(hn::Vec<D> v, D d, float* p) {
  hn::StoreU(v, d, p);
}
// Round to nearest even, as to_bf16() in core/bf16.h.
template <class D>
HWY_INLINE void StoreF(hn::Vec<D> v, D, bf16* p) {
  const hn::Rebind<std::uint32_t, D> d32;
  const hn::Rebind<std::int32_t, D> di32;
  const hn::Rebind<std::uint16_t, D> d16;
  const auto u = hn::BitCast(d32, v);
  const auto odd = hn::And(hn::ShiftRight<16>(u), hn::Set(d32, 1));
  const auto rounded = hn::Add(u, hn::Add(odd, hn::Set(d32, 0x7fff)));
  const auto quiet_nan = hn::Or(u, hn::Set(d32, 0x400000));
  const auto is_nan = hn::RebindMask(d32, hn::IsNaN(v));
  const auto upper = hn::ShiftRight<16>(hn::IfThenElse(is_nan, quiet_nan, rounded));
  hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di32, upper)), d16, reinterpret_cast<std::uint16_t*>(p));
}

// body(tag, i) for i = 0, L, 2L, ...: every element once.
template <class Body>
HWY_INLINE void ForEach(Index n, const Body& body) {
  const Full d;
  const Index lanes = static_cast<Index>(hn::Lanes(d));
  Index i = 0;
  for (; i + lanes <= n; i += lanes) body(d, i);
  for (; i < n; ++i) body(One(), i);
}

// body(i, G) over [0, n) in groups: G = kGroup elements from i on, in the end the 1, 2 or 3 that are left. G
// is an integral_constant: the body's arrays of G vectors stay in registers.
inline constexpr Index kGroup = 4;
template <class Body>
HWY_INLINE void ForGroups(Index n, const Body& body) {
  Index i = 0;
  for (; i + kGroup <= n; i += kGroup) body(i, std::integral_constant<Index, kGroup>());
  switch (n - i) {
    case 3:
      return body(i, std::integral_constant<Index, 3>());
    case 2:
      return body(i, std::integral_constant<Index, 2>());
    case 1:
      return body(i, std::integral_constant<Index, 1>());
    default:
      return;
  }
}

// Sum over all elements of term(tag, i). Four accumulators hide the latency of the addition.
template <class Term>
HWY_INLINE float Sum(Index n, const Term& term) {
  const Full d;
  const Index lanes = static_cast<Index>(hn::Lanes(d));
  Vec s0 = hn::Zero(d), s1 = hn::Zero(d), s2 = hn::Zero(d), s3 = hn::Zero(d);
  Index i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    s0 = hn::Add(s0, term(d, i));
    s1 = hn::Add(s1, term(d, i + lanes));
    s2 = hn::Add(s2, term(d, i + 2 * lanes));
    s3 = hn::Add(s3, term(d, i + 3 * lanes));
  }
  for (; i + lanes <= n; i += lanes) s0 = hn::Add(s0, term(d, i));
  float total = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
  for (; i < n; ++i) total += hn::GetLane(term(One(), i));
  return total;
}

// 1 / (1 + exp(-x)) of one number, without overflow for any x.
HWY_INLINE float Sigmoid1(float x) {
  return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x));
}

}  // namespace HWY_NAMESPACE
}  // namespace ddl
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
