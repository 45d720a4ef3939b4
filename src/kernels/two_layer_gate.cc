#include "kernels/two_layer_gate.h"

#include <algorithm>
#include <type_traits>

#include "kernels/ordered_sums.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/two_layer_gate.cc"
#include <hwy/foreach_target.h>
// After foreach_target, so that each instruction set gets its own copy.
#include <hwy/contrib/math/math-inl.h>

#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ddl {
namespace HWY_NAMESPACE {

void GateForward(float* gate_N, Index stride, float scale, const float* hidden_NG, const float* w2_G,
                 float b2, Index begin, Index end, Index G) {
  for (Index n = begin; n < end; ++n) {
    const float logit = Sum(G, [&](auto tag, Index i) HWY_ATTR {
      return hn::Mul(hn::Tanh(tag, hn::LoadU(tag, hidden_NG + n * G + i)), hn::LoadU(tag, w2_G + i));
    });
    gate_N[n * stride] = scale * Sigmoid1(logit + b2);
  }
}

// With t = tanh(hidden) and dlogit = dgate gate (1 - gate / scale):
//   dhidden_i = dlogit w2_i (1 - t_i^2)
//   dw2_i    += dlogit t_i
//   db2      += dlogit
template <class T>
void GateBackward(T* dhidden_NG, float* partial, const float* dgate_N, const float* gate_N, Index stride,
                  float scale, const float* hidden_NG, const float* w2_G, Index begin, Index end, Index G) {
  for (Index n = begin; n < end; ++n) {
    const float gate = gate_N[n * stride], dlogit = dgate_N[n * stride] * gate * (1 - gate / scale);
    partial[G] += dlogit;
    ForEach(G, [&](auto tag, Index i) HWY_ATTR {
      const auto t = hn::Tanh(tag, hn::LoadU(tag, hidden_NG + n * G + i));
      const auto g = hn::Set(tag, dlogit);
      const auto slope = hn::NegMulAdd(t, t, hn::Set(tag, 1.0f));
      StoreF(hn::Mul(hn::Mul(g, hn::LoadU(tag, w2_G + i)), slope), tag, dhidden_NG + n * G + i);
      hn::StoreU(hn::MulAdd(g, t, hn::LoadU(tag, partial + i)), tag, partial + i);
    });
  }
}
void GateBackwardF32(float* dh, float* p, const float* dg, const float* g, Index stride, float scale,
                     const float* h, const float* w, Index begin, Index end, Index G) {
  GateBackward(dh, p, dg, g, stride, scale, h, w, begin, end, G);
}
void GateBackwardBf16(bf16* dh, float* p, const float* dg, const float* g, Index stride, float scale,
                      const float* h, const float* w, Index begin, Index end, Index G) {
  GateBackward(dh, p, dg, g, stride, scale, h, w, begin, end, G);
}

}  // namespace HWY_NAMESPACE
}  // namespace ddl
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ddl {
namespace {

HWY_EXPORT(GateForward);
HWY_EXPORT(GateBackwardF32);
HWY_EXPORT(GateBackwardBf16);

}  // namespace

void two_layer_gate_fwd(float* gate_N, Index stride, float scale, const float* hidden_NG, const float* w2_G,
                        const float* b2, Index N, Index G, const Exec& ex) {
  parallel_chunks(N, kTokensPerTask, ex, [&](Index begin, Index end) {
    DDL_DISPATCH(GateForward, gate_N, stride, scale, hidden_NG, w2_G, *b2, begin, end, G);
  });
}

Index two_layer_gate_scratch(Index G) { return kSumParts * (G + 1); }

template <class T>
void two_layer_gate_bwd(T* dhidden_NG, float* dw2_G, float* db2, const float* dgate_N, const float* gate_N,
                        Index stride, float scale, const float* hidden_NG, const float* w2_G, float* scratch,
                        Index N, Index G, const Exec& ex) {
  parallel_for(kSumParts, ex, [&](Index p) {
    float* row = scratch + p * (G + 1);
    std::fill_n(row, G + 1, 0.0f);
    const Index begin = part_begin(N, p), end = part_begin(N, p + 1);
    if constexpr (std::is_same_v<T, float>)
      DDL_DISPATCH(GateBackwardF32, dhidden_NG, row, dgate_N, gate_N, stride, scale, hidden_NG, w2_G, begin,
                   end, G);
    else
      DDL_DISPATCH(GateBackwardBf16, dhidden_NG, row, dgate_N, gate_N, stride, scale, hidden_NG, w2_G, begin,
                   end, G);
  });
  add_parts_in_order(dw2_G, scratch, G + 1, G, N, ex);
  add_parts_in_order(db2, scratch + G, G + 1, 1, N, ex);
}

template void two_layer_gate_bwd(float*, float*, float*, const float*, const float*, Index, float,
                                 const float*, const float*, float*, Index, Index, const Exec&);
template void two_layer_gate_bwd(bf16*, float*, float*, const float*, const float*, Index, float,
                                 const float*, const float*, float*, Index, Index, const Exec&);

}  // namespace ddl
#endif  // HWY_ONCE
