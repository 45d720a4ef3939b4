#include "kernels/swiglu.h"

#include <type_traits>

#include "kernels/ordered_sums.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/swiglu.cc"
#include <hwy/foreach_target.h>

#include "kernels/exp2-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ddl {
namespace HWY_NAMESPACE {

// hidden = a s b   with s = sigmoid(a)
template <class Act>
HWY_INLINE void SwigluFwd(Act* hidden_NF, const Act* gate_up_N2F, Index begin, Index end, Index F) {
  for (Index n = begin; n < end; ++n) {
    const Act* a_F = gate_up_N2F + n * 2 * F;
    const Act* b_F = a_F + F;
    ForEach(F, [&](auto d, Index f) HWY_ATTR {
      const auto a = LoadF(d, a_F + f), b = LoadF(d, b_F + f);
      StoreF(hn::Mul(hn::Mul(a, QuickSigmoid(d, a)), b), d, hidden_NF + n * F + f);
    });
  }
}

// With g = dL/dhidden and ds/da = s (1 - s):
//   da = g b (s + a s (1 - s)) = g b s (1 + a (1 - s))
//   db = g a s
template <class Act>
HWY_INLINE void SwigluBwd(Act* dgate_up_N2F, Act* hidden_NF, const Act* dhidden_NF, const Act* gate_up_N2F,
                          Index begin, Index end, Index F) {
  for (Index n = begin; n < end; ++n) {
    const Act* a_F = gate_up_N2F + n * 2 * F;
    const Act* b_F = a_F + F;
    Act* da_F = dgate_up_N2F + n * 2 * F;
    Act* db_F = da_F + F;
    ForEach(F, [&](auto d, Index f) HWY_ATTR {
      const auto one = hn::Set(d, 1.0f);
      const auto a = LoadF(d, a_F + f), b = LoadF(d, b_F + f), g = LoadF(d, dhidden_NF + n * F + f);
      const auto s = QuickSigmoid(d, a);
      const auto silu = hn::Mul(a, s);
      const auto slope = hn::Mul(s, hn::MulAdd(a, hn::Sub(one, s), one));
      if (hidden_NF) StoreF(hn::Mul(silu, b), d, hidden_NF + n * F + f);
      StoreF(hn::Mul(hn::Mul(g, b), slope), d, da_F + f);
      StoreF(hn::Mul(g, silu), d, db_F + f);
    });
  }
}

void SwigluFwdF32(float* hidden, const float* gate_up, Index begin, Index end, Index F) {
  SwigluFwd(hidden, gate_up, begin, end, F);
}
void SwigluFwdBf16(bf16* hidden, const bf16* gate_up, Index begin, Index end, Index F) {
  SwigluFwd(hidden, gate_up, begin, end, F);
}
void SwigluBwdF32(float* dgate_up, float* hidden, const float* dhidden, const float* gate_up, Index begin,
                  Index end, Index F) {
  SwigluBwd(dgate_up, hidden, dhidden, gate_up, begin, end, F);
}
void SwigluBwdBf16(bf16* dgate_up, bf16* hidden, const bf16* dhidden, const bf16* gate_up, Index begin,
                   Index end, Index F) {
  SwigluBwd(dgate_up, hidden, dhidden, gate_up, begin, end, F);
}

}  // namespace HWY_NAMESPACE
}  // namespace ddl
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace ddl {

HWY_EXPORT(SwigluFwdF32);
HWY_EXPORT(SwigluFwdBf16);
HWY_EXPORT(SwigluBwdF32);
HWY_EXPORT(SwigluBwdBf16);

namespace {
// Tokens that a thread takes at a time.
Index tokens_per_claim(Index F) { return 1 + kElementsPerTask / (F + 1); }
}  // namespace

template <class Act>
void swiglu_fwd(Act* hidden_NF, const Act* gate_up_N2F, Index N, Index F, const Exec& ex) {
  parallel_chunks(N, tokens_per_claim(F), ex, [&](Index begin, Index end) {
    if constexpr (std::is_same_v<Act, float>)
      DDL_DISPATCH(SwigluFwdF32, hidden_NF, gate_up_N2F, begin, end, F);
    else
      DDL_DISPATCH(SwigluFwdBf16, hidden_NF, gate_up_N2F, begin, end, F);
  });
}

template <class Act>
void swiglu_bwd(Act* dgate_up_N2F, Act* hidden_NF, const Act* dhidden_NF, const Act* gate_up_N2F, Index N,
                Index F, const Exec& ex) {
  parallel_chunks(N, tokens_per_claim(F), ex, [&](Index begin, Index end) {
    if constexpr (std::is_same_v<Act, float>)
      DDL_DISPATCH(SwigluBwdF32, dgate_up_N2F, hidden_NF, dhidden_NF, gate_up_N2F, begin, end, F);
    else
      DDL_DISPATCH(SwigluBwdBf16, dgate_up_N2F, hidden_NF, dhidden_NF, gate_up_N2F, begin, end, F);
  });
}

template void swiglu_fwd(float*, const float*, Index, Index, const Exec&);
template void swiglu_fwd(bf16*, const bf16*, Index, Index, const Exec&);
template void swiglu_bwd(float*, float*, const float*, const float*, Index, Index, const Exec&);
template void swiglu_bwd(bf16*, bf16*, const bf16*, const bf16*, Index, Index, const Exec&);

}  // namespace ddl
#endif
