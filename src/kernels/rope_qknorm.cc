#include "kernels/rope_qknorm.h"

#include <cmath>
#include <type_traits>

#include "core/error.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rope_qknorm.cc"
#include <hwy/foreach_target.h>

#include "kernels/simd-inl.h"

#ifndef DDL_KERNELS_ROPE_QKNORM_ONCE_
#define DDL_KERNELS_ROPE_QKNORM_ONCE_
namespace ddl {
// What both passes walk over: tokens [begin, end).
struct RopeRange {
  const float* q_w_K;
  const float* k_w_K;
  const float* rope_TK;
  const std::int32_t* position_N;
  Index begin, end, T, H, K;
  const float* table_row(Index n) const { return rope_TK + (position_N ? position_N[n] : n % T) * K; }
};
}  // namespace ddl
#endif

HWY_BEFORE_NAMESPACE();
namespace ddl {
namespace HWY_NAMESPACE {

// With c, s = cos, sin of the token's angle for pair i, and a = x_i, b = x_{i+K/2}:
//   r_i       = a c - b s
//   r_{i+K/2} = a s + b c
//   rstd      = 1 / sqrt(mean(x^2) + eps)        (a rotation keeps the norm, so x serves for r)
//   y         = w r rstd
template <class Act>
HWY_INLINE float NormalizeHead(Act* y_K, const Act* x_K, const float* w_K, const float* cos_sin_K, Index K) {
  const Index half = K / 2;
  const float squares = Sum(K, [&](auto d, Index i) HWY_ATTR {
    const auto x = LoadF(d, x_K + i);
    return hn::Mul(x, x);
  });
  const float rstd = 1.0f / std::sqrt(squares / static_cast<float>(K) + kQkNormEps);
  ForEach(half, [&](auto d, Index i) HWY_ATTR {
    const auto a = LoadF(d, x_K + i), b = LoadF(d, x_K + half + i);
    const auto c = LoadF(d, cos_sin_K + i), s = LoadF(d, cos_sin_K + half + i);
    const auto scale = hn::Set(d, rstd);
    const auto r0 = hn::MulSub(a, c, hn::Mul(b, s));
    const auto r1 = hn::MulAdd(a, s, hn::Mul(b, c));
    StoreF(hn::Mul(LoadF(d, w_K + i), hn::Mul(r0, scale)), d, y_K + i);
    StoreF(hn::Mul(LoadF(d, w_K + half + i), hn::Mul(r1, scale)), d, y_K + half + i);
  });
  return rstd;
}

// With n = r rstd (recomputed), g = dL/dy and u = g w:
//   dw         = sum over heads and tokens of g n
//   dr         = rstd (u - n mean(u n))
//   dx_i       = dr_i c + dr_{i+K/2} s
//   dx_{i+K/2} = dr_{i+K/2} c - dr_i s
template <class Act>
HWY_INLINE void NormalizeHeadBwd(Act* dx_K, float* dw_K, const Act* g_K, const Act* x_K, float rstd,
                                 const float* w_K, const float* cos_sin_K, Index K) {
  const Index half = K / 2;
  // First pass over the pairs: adds g n to dw and sums u n.
  const float dot = Sum(half, [&](auto d, Index i) HWY_ATTR {
    const auto a = LoadF(d, x_K + i), b = LoadF(d, x_K + half + i), scale = hn::Set(d, rstd);
    const auto c = LoadF(d, cos_sin_K + i), s = LoadF(d, cos_sin_K + half + i);
    const auto gn0 = hn::Mul(LoadF(d, g_K + i), hn::Mul(hn::MulSub(a, c, hn::Mul(b, s)), scale));
    const auto gn1 = hn::Mul(LoadF(d, g_K + half + i), hn::Mul(hn::MulAdd(a, s, hn::Mul(b, c)), scale));
    StoreF(hn::Add(LoadF(d, dw_K + i), gn0), d, dw_K + i);
    StoreF(hn::Add(LoadF(d, dw_K + half + i), gn1), d, dw_K + half + i);
    return hn::MulAdd(LoadF(d, w_K + i), gn0, hn::Mul(LoadF(d, w_K + half + i), gn1));
  });
  const float mean = dot / static_cast<float>(K);
  // Rotating n back gives x rstd, so dx = rstd (R^T u - x rstd mean).
  ForEach(half, [&](auto d, Index i) HWY_ATTR {
    const auto c = LoadF(d, cos_sin_K + i), s = LoadF(d, cos_sin_K + half + i);
    const auto u0 = hn::Mul(LoadF(d, g_K + i), LoadF(d, w_K + i));
    const auto u1 = hn::Mul(LoadF(d, g_K + half + i), LoadF(d, w_K + half + i));
    const auto scale = hn::Set(d, rstd), along = hn::Set(d, rstd * mean);
    const auto back0 = hn::MulAdd(u0, c, hn::Mul(u1, s));
    const auto back1 = hn::MulSub(u1, c, hn::Mul(u0, s));
    const auto dx0 = hn::Mul(scale, hn::NegMulAdd(LoadF(d, x_K + i), along, back0));
    const auto dx1 = hn::Mul(scale, hn::NegMulAdd(LoadF(d, x_K + half + i), along, back1));
    StoreF(dx0, d, dx_K + i);
    StoreF(dx1, d, dx_K + half + i);
  });
}

template <class Act>
HWY_INLINE void RopeFwd(Act* q_NC, Act* k_NC, float* rstd_N2H, const Act* qkv_N3C, const RopeRange& r) {
  const Index C = r.H * r.K;
  for (Index n = r.begin; n < r.end; ++n)
    for (Index h = 0; h < r.H; ++h) {
      const Act* x_K = qkv_N3C + n * 3 * C + h * r.K;
      const Index at = n * C + h * r.K;
      float* rstd = rstd_N2H + n * 2 * r.H + h;
      rstd[0] = NormalizeHead(q_NC + at, x_K, r.q_w_K, r.table_row(n), r.K);
      rstd[r.H] = NormalizeHead(k_NC + at, x_K + C, r.k_w_K, r.table_row(n), r.K);
    }
}

template <class Act>
HWY_INLINE void RopeBwd(Act* dqkv_N3C, float* dw_2K, const Act* dq, Index ld_dq, const Act* dk, Index ld_dk,
                        const Act* qkv_N3C, const float* rstd_N2H, const RopeRange& r) {
  const Index C = r.H * r.K;
  for (Index i = 0; i < 2 * r.K; ++i) dw_2K[i] = 0;
  for (Index n = r.begin; n < r.end; ++n)
    for (Index h = 0; h < r.H; ++h) {
      const Index at = n * 3 * C + h * r.K;
      const float* rstd = rstd_N2H + n * 2 * r.H + h;
      NormalizeHeadBwd(dqkv_N3C + at, dw_2K, dq + n * ld_dq + h * r.K, qkv_N3C + at, rstd[0], r.q_w_K,
                       r.table_row(n), r.K);
      NormalizeHeadBwd(dqkv_N3C + at + C, dw_2K + r.K, dk + n * ld_dk + h * r.K, qkv_N3C + at + C, rstd[r.H],
                       r.k_w_K, r.table_row(n), r.K);
    }
}

void RopeFwdF32(float* q, float* k, float* rstd, const float* qkv, const RopeRange& range) {
  RopeFwd(q, k, rstd, qkv, range);
}
void RopeFwdBf16(bf16* q, bf16* k, float* rstd, const bf16* qkv, const RopeRange& range) {
  RopeFwd(q, k, rstd, qkv, range);
}
void RopeBwdF32(float* dqkv, float* dw_2K, const float* dq, Index ld_dq, const float* dk, Index ld_dk,
                const float* qkv, const float* rstd, const RopeRange& range) {
  RopeBwd(dqkv, dw_2K, dq, ld_dq, dk, ld_dk, qkv, rstd, range);
}
void RopeBwdBf16(bf16* dqkv, float* dw_2K, const bf16* dq, Index ld_dq, const bf16* dk, Index ld_dk,
                 const bf16* qkv, const float* rstd, const RopeRange& range) {
  RopeBwd(dqkv, dw_2K, dq, ld_dq, dk, ld_dk, qkv, rstd, range);
}

}  // namespace HWY_NAMESPACE
}  // namespace ddl
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/ordered_sums.h"

namespace ddl {

HWY_EXPORT(RopeFwdF32);
HWY_EXPORT(RopeFwdBf16);
HWY_EXPORT(RopeBwdF32);
HWY_EXPORT(RopeBwdBf16);

Index rope_qknorm_scratch_floats(Index K) { return kSumParts * 2 * K; }

void fill_rope_table(float* rope_TK, Index T, Index K, double base) {
  const Index half = div_exact(K, 2);
  for (Index i = 0; i < half; ++i) {
    const double frequency = std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(K));
    for (Index t = 0; t < T; ++t) {
      const double angle = static_cast<double>(t) * frequency;
      rope_TK[t * K + i] = static_cast<float>(std::cos(angle));
      rope_TK[t * K + half + i] = static_cast<float>(std::sin(angle));
    }
  }
}

template <class Act>
void rope_qknorm_fwd(Act* q_NC, Act* k_NC, float* rstd_N2H, const Act* qkv_N3C, const float* q_w_K,
                     const float* k_w_K, const float* rope_TK, const std::int32_t* position_N, Index N,
                     Index T, Index H, Index K, const Exec& ex) {
  DDL_CHECK(K % 2 == 0, "head size {} is odd", K);
  parallel_chunks(N, kTokensPerTask, ex, [&](Index begin, Index end) {
    const RopeRange range{q_w_K, k_w_K, rope_TK, position_N, begin, end, T, H, K};
    if constexpr (std::is_same_v<Act, float>)
      DDL_DISPATCH(RopeFwdF32, q_NC, k_NC, rstd_N2H, qkv_N3C, range);
    else
      DDL_DISPATCH(RopeFwdBf16, q_NC, k_NC, rstd_N2H, qkv_N3C, range);
  });
}

template <class Act>
void rope_qknorm_bwd(Act* dqkv_N3C, float* dq_w_K, float* dk_w_K, float* scratch, const Act* dq, Index ld_dq,
                     const Act* dk, Index ld_dk, const Act* qkv_N3C, const float* rstd_N2H,
                     const float* q_w_K, const float* k_w_K, const float* rope_TK,
                     const std::int32_t* position_N, Index N, Index T, Index H, Index K, const Exec& ex) {
  DDL_CHECK(K % 2 == 0, "head size {} is odd", K);
  parallel_for(kSumParts, ex, [&](Index p) {
    const RopeRange range{q_w_K, k_w_K, rope_TK, position_N, part_begin(N, p), part_begin(N, p + 1), T, H, K};
    float* dw_2K = scratch + p * 2 * K;
    if constexpr (std::is_same_v<Act, float>)
      DDL_DISPATCH(RopeBwdF32, dqkv_N3C, dw_2K, dq, ld_dq, dk, ld_dk, qkv_N3C, rstd_N2H, range);
    else
      DDL_DISPATCH(RopeBwdBf16, dqkv_N3C, dw_2K, dq, ld_dq, dk, ld_dk, qkv_N3C, rstd_N2H, range);
  });
  add_parts_in_order(dq_w_K, scratch, 2 * K, K, N, ex);
  add_parts_in_order(dk_w_K, scratch + K, 2 * K, K, N, ex);
}

template void rope_qknorm_fwd(float*, float*, float*, const float*, const float*, const float*, const float*,
                              const std::int32_t*, Index, Index, Index, Index, const Exec&);
template void rope_qknorm_fwd(bf16*, bf16*, float*, const bf16*, const float*, const float*, const float*,
                              const std::int32_t*, Index, Index, Index, Index, const Exec&);
template void rope_qknorm_bwd(float*, float*, float*, float*, const float*, Index, const float*, Index,
                              const float*, const float*, const float*, const float*, const float*,
                              const std::int32_t*, Index, Index, Index, Index, const Exec&);
template void rope_qknorm_bwd(bf16*, float*, float*, float*, const bf16*, Index, const bf16*, Index,
                              const bf16*, const float*, const float*, const float*, const float*,
                              const std::int32_t*, Index, Index, Index, Index, const Exec&);

}  // namespace ddl
#endif
