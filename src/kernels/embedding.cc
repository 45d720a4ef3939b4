#include "kernels/embedding.h"

#include <type_traits>

#include "core/error.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/embedding.cc"
#include <hwy/foreach_target.h>

#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ddl {
namespace HWY_NAMESPACE {

// x_nc = wte_vc   with v = token(n)
template <class X, class W>
HWY_INLINE void Gather(X* x_NC, const W* wte_VC, const std::int32_t* token_N, Index begin, Index end,
                       Index C) {
  for (Index n = begin; n < end; ++n) {
    X* x_C = x_NC + n * C;
    const W* w_C = wte_VC + token_N[n] * C;
    ForEach(C, [&](auto d, Index c) HWY_ATTR { StoreF(LoadF(d, w_C + c), d, x_C + c); });
  }
}

// dwte_vc += dx_nc   with v = token(n), for all n and the columns [begin, end)
template <class Grad>
HWY_INLINE void ScatterAdd(float* dwte_VC, const Grad* dx_NC, const std::int32_t* token_N, Index begin,
                           Index end, Index N, Index C) {
  for (Index n = 0; n < N; ++n) {
    const Grad* dx = dx_NC + n * C + begin;
    float* dw = dwte_VC + token_N[n] * C + begin;
    ForEach(end - begin, [&](auto d, Index c)
                             HWY_ATTR { StoreF(hn::Add(LoadF(d, dw + c), LoadF(d, dx + c)), d, dw + c); });
  }
}

void GatherF32(float* x, const float* wte, const std::int32_t* token, Index begin, Index end, Index C) {
  Gather(x, wte, token, begin, end, C);
}
void GatherBf16(bf16* x, const bf16* wte, const std::int32_t* token, Index begin, Index end, Index C) {
  Gather(x, wte, token, begin, end, C);
}
void GatherWiden(float* x, const bf16* wte, const std::int32_t* token, Index begin, Index end, Index C) {
  Gather(x, wte, token, begin, end, C);
}
void ScatterAddF32(float* dwte, const float* dx, const std::int32_t* token, Index begin, Index end, Index N,
                   Index C) {
  ScatterAdd(dwte, dx, token, begin, end, N, C);
}
void ScatterAddBf16(float* dwte, const bf16* dx, const std::int32_t* token, Index begin, Index end, Index N,
                    Index C) {
  ScatterAdd(dwte, dx, token, begin, end, N, C);
}

}  // namespace HWY_NAMESPACE
}  // namespace ddl
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace ddl {

HWY_EXPORT(GatherF32);
HWY_EXPORT(GatherBf16);
HWY_EXPORT(GatherWiden);
HWY_EXPORT(ScatterAddF32);
HWY_EXPORT(ScatterAddBf16);

namespace {
constexpr Index kTokensPerClaim = 32;
constexpr Index kColumnsPerClaim = 64;  // threads own columns, so that no two write to the same number

void check_tokens(const std::int32_t* token_N, Index N, Index V) {
  for (Index n = 0; n < N; ++n)
    DDL_CHECK(token_N[n] >= 0 && token_N[n] < V, "token {} outside vocabulary {}", token_N[n], V);
}
}  // namespace

template <class X, class W>
void embedding_fwd(X* x_NC, const W* wte_VC, const std::int32_t* token_N, Index N, Index V, Index C,
                   const Exec& ex) {
  check_tokens(token_N, N, V);
  parallel_chunks(N, kTokensPerClaim, ex, [&](Index begin, Index end) {
    if constexpr (std::is_same_v<W, float>)
      DDL_DISPATCH(GatherF32, x_NC, wte_VC, token_N, begin, end, C);
    else if constexpr (std::is_same_v<X, bf16>)
      DDL_DISPATCH(GatherBf16, x_NC, wte_VC, token_N, begin, end, C);
    else
      DDL_DISPATCH(GatherWiden, x_NC, wte_VC, token_N, begin, end, C);
  });
}

template <class Grad>
void embedding_bwd(float* dwte_VC, const Grad* dx_NC, const std::int32_t* token_N, Index N, Index V, Index C,
                   const Exec& ex) {
  check_tokens(token_N, N, V);
  parallel_chunks(C, kColumnsPerClaim, ex, [&](Index begin, Index end) {
    if constexpr (std::is_same_v<Grad, float>)
      DDL_DISPATCH(ScatterAddF32, dwte_VC, dx_NC, token_N, begin, end, N, C);
    else
      DDL_DISPATCH(ScatterAddBf16, dwte_VC, dx_NC, token_N, begin, end, N, C);
  });
}

template void embedding_fwd(float*, const float*, const std::int32_t*, Index, Index, Index, const Exec&);
template void embedding_fwd(float*, const bf16*, const std::int32_t*, Index, Index, Index, const Exec&);
template void embedding_fwd(bf16*, const bf16*, const std::int32_t*, Index, Index, Index, const Exec&);
template void embedding_bwd(float*, const float*, const std::int32_t*, Index, Index, Index, const Exec&);
template void embedding_bwd(float*, const bf16*, const std::int32_t*, Index, Index, Index, const Exec&);

}  // namespace ddl
#endif
