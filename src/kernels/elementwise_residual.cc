#include "kernels/elementwise_residual.h"

#include <cstring>
#include <type_traits>

#include "kernels/ordered_sums.h"
#include "kernels/residual_pass.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/elementwise_residual.cc"
#include <hwy/foreach_target.h>

#include "kernels/exp2-inl.h"
#include "kernels/norm_row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ddl {
namespace HWY_NAMESPACE {

template <class T>
void NormTokens(const NormFwd<T>& norm, const float* x_NC, Index begin, Index end, Index C) {
  for (Index n = begin; n < end; ++n)
    norm.rstd_N[n] = NormRow(norm.context_NC + n * C, x_NC + n * C, norm.norm_C, norm.norm_eps, C);
}

void NormTokensBackward(float* dx_NC, const float* dstate_NC, const float* more_NC, const NormBwd& norm,
                        const float* x_NC, float* dnorm_C, Index begin, Index end, Index C) {
  for (Index n = begin; n < end; ++n)
    NormRowBackward(dnorm_C, norm.dcontext_NC + n * C, x_NC + n * C, norm.norm_C, norm.rstd_N[n], C,
                    [&](auto d, Index i, auto dx) HWY_ATTR {
                      dx = hn::Add(dx, hn::LoadU(d, dstate_NC + n * C + i));
                      if (more_NC) dx = hn::Add(dx, hn::LoadU(d, more_NC + n * C + i));
                      hn::StoreU(dx, d, dx_NC + n * C + i);
                    });
}

// x' = a x + b x0 + h
template <class T>
void DecayTokens(const DecayFwd<T>& w, const NormFwd<T>& norm, Index begin, Index end, Index C) {
  for (Index n = begin; n < end; ++n) {
    const float *x = w.x_NC + n * C, *x0 = w.x0_NC + n * C;
    const T* h = w.h_NC + n * C;
    float* next = w.next_NC + n * C;
    ForEach(C, [&](auto d, Index i) HWY_ATTR {
      const auto fresh = hn::MulAdd(hn::Set(d, w.b), hn::LoadU(d, x0 + i), LoadF(d, h + i));
      hn::StoreU(hn::MulAdd(hn::Set(d, w.a), hn::LoadU(d, x + i), fresh), d, next + i);
    });
    norm.rstd_N[n] = NormRow(norm.context_NC + n * C, next, norm.norm_C, norm.norm_eps, C);
  }
}

// With g the gradient of x':
//   dh = g        dx = a g        dx0 += b g        da += g . x        db += g . x0
template <class T>
void DecayTokensBackward(const DecayBwd<T>& w, const NormBwd& norm, float* dnorm_C, float* da_db, Index begin,
                         Index end, Index C) {
  float g[kMaxWidth];
  const bool fresh = w.mode == Write::kOverwrite;
  for (Index n = begin; n < end; ++n) {
    const float *x = w.x_NC + n * C, *x0 = w.x0_NC + n * C;
    float *dstate = w.dstate_NC + n * C, *dx0 = w.dx0_NC + n * C;
    T* dh = w.dh_NC + n * C;
    NormRowBackward(dnorm_C, norm.dcontext_NC + n * C, w.next_NC + n * C, norm.norm_C, norm.rstd_N[n], C,
                    [&](auto d, Index i, auto grad) HWY_ATTR {
                      auto old = hn::Zero(d);
                      if (!fresh) {
                        grad = hn::Add(hn::LoadU(d, dstate + i), grad);
                        old = hn::LoadU(d, dx0 + i);
                      }
                      hn::StoreU(grad, d, g + i);
                      StoreF(grad, d, dh + i);
                      hn::StoreU(hn::Mul(hn::Set(d, w.a), grad), d, dstate + i);
                      hn::StoreU(hn::MulAdd(hn::Set(d, w.b), grad, old), d, dx0 + i);
                    });
    const auto dot_g = [&](const float* v) HWY_ATTR {
      return Sum(C,
                 [&](auto d, Index i) HWY_ATTR { return hn::Mul(hn::LoadU(d, g + i), hn::LoadU(d, v + i)); });
    };
    da_db[0] += dot_g(x);
    da_db[1] += dot_g(x0);
  }
}

// c = x rstd norm,  gate = sigmoid(w c + bias)
template <class D, class W>
HWY_INLINE hn::Vec<D> ContextAt(D d, const W& w, hn::Vec<D> x, float rstd, Index i) {
  return hn::Mul(hn::Mul(x, hn::Set(d, rstd)), hn::LoadU(d, w.norm_C + i));
}
template <class D, class W>
HWY_INLINE hn::Vec<D> GateAt(D d, const W& w, hn::Vec<D> c, Index i) {
  return QuickSigmoid(d, hn::MulAdd(hn::LoadU(d, w.w_C + i), c, hn::LoadU(d, w.bias_C + i)));
}

// x' = x + gate * (h - x)
template <class T>
void HighwayTokens(const HighwayFwd<T>& w, const NormFwd<T>& norm, Index begin, Index end, Index C) {
  for (Index n = begin; n < end; ++n) {
    const float rstd = w.rstd_N[n];
    const float* x = w.x_NC + n * C;
    const T* h = w.h_NC + n * C;
    float* next = w.next_NC + n * C;
    // Sum visits every element once, so the write can share its sweep.
    const float gates = Sum(C, [&](auto d, Index i) HWY_ATTR {
      const auto xv = hn::LoadU(d, x + i);
      const auto gate = GateAt(d, w, ContextAt(d, w, xv, rstd, i), i);
      hn::StoreU(hn::MulAdd(gate, hn::Sub(LoadF(d, h + i), xv), xv), d, next + i);
      return gate;
    });
    w.mean_gate_N[n] = gates / static_cast<float>(C);
    norm.rstd_N[n] = NormRow(norm.context_NC + n * C, next, norm.norm_C, norm.norm_eps, C);
  }
}

// Where one part of the tokens collects its share of the gradients.
struct HighwayPart {
  float *next_norm_C, *w_C, *bias_C, *norm_C;
};

// With g the gradient of x' and u = w c + bias:
//   dh = gate g        du = g (h - x) gate (1 - gate)        dw += du c        dbias += du
//   dx = (1 - gate) g + the norm's gradient at dc = du w
template <class T>
void HighwayTokensBackward(const HighwayBwd<T>& w, const NormBwd& norm, const HighwayPart& part, Index begin,
                           Index end, Index C) {
  float g[kMaxWidth], dc[kMaxWidth];
  const bool fresh = w.mode == Write::kOverwrite;
  for (Index n = begin; n < end; ++n) {
    const float rstd = w.rstd_N[n];
    const float* x = w.x_NC + n * C;
    const T* h = w.h_NC + n * C;
    float* dstate = w.dstate_NC + n * C;
    T* dh = w.dh_NC + n * C;
    NormRowBackward(part.next_norm_C, norm.dcontext_NC + n * C, w.next_NC + n * C, norm.norm_C,
                    norm.rstd_N[n], C, [&](auto d, Index i, auto grad) HWY_ATTR {
                      if (!fresh) grad = hn::Add(hn::LoadU(d, dstate + i), grad);
                      hn::StoreU(grad, d, g + i);
                    });
    ForEach(C, [&](auto d, Index i) HWY_ATTR {
      const auto xv = hn::LoadU(d, x + i), grad = hn::LoadU(d, g + i);
      const auto c = ContextAt(d, w, xv, rstd, i), gate = GateAt(d, w, c, i);
      const auto dgate = hn::Mul(grad, hn::Sub(LoadF(d, h + i), xv));
      const auto du = hn::Mul(dgate, hn::Mul(gate, hn::Sub(hn::Set(d, 1.0f), gate)));
      hn::StoreU(hn::MulAdd(du, c, hn::LoadU(d, part.w_C + i)), d, part.w_C + i);
      hn::StoreU(hn::Add(du, hn::LoadU(d, part.bias_C + i)), d, part.bias_C + i);
      hn::StoreU(hn::Mul(du, hn::LoadU(d, w.w_C + i)), d, dc + i);
      StoreF(hn::Mul(gate, grad), d, dh + i);
      hn::StoreU(hn::NegMulAdd(gate, grad, grad), d, dstate + i);
    });
    NormRowBackward(part.norm_C, dc, x, w.norm_C, rstd, C, [&](auto d, Index i, auto grad) HWY_ATTR {
      hn::StoreU(hn::Add(hn::LoadU(d, dstate + i), grad), d, dstate + i);
    });
  }
}

void NormTokensF32(const NormFwd<float>& norm, const float* x, Index b, Index e, Index C) {
  NormTokens(norm, x, b, e, C);
}
void NormTokensBf16(const NormFwd<bf16>& norm, const float* x, Index b, Index e, Index C) {
  NormTokens(norm, x, b, e, C);
}
void DecayF32(const DecayFwd<float>& w, const NormFwd<float>& norm, Index b, Index e, Index C) {
  DecayTokens(w, norm, b, e, C);
}
void DecayBf16(const DecayFwd<bf16>& w, const NormFwd<bf16>& norm, Index b, Index e, Index C) {
  DecayTokens(w, norm, b, e, C);
}
void DecayBackwardF32(const DecayBwd<float>& w, const NormBwd& norm, float* dnorm, float* da_db, Index b,
                      Index e, Index C) {
  DecayTokensBackward(w, norm, dnorm, da_db, b, e, C);
}
void DecayBackwardBf16(const DecayBwd<bf16>& w, const NormBwd& norm, float* dnorm, float* da_db, Index b,
                       Index e, Index C) {
  DecayTokensBackward(w, norm, dnorm, da_db, b, e, C);
}
void HighwayF32(const HighwayFwd<float>& w, const NormFwd<float>& norm, Index b, Index e, Index C) {
  HighwayTokens(w, norm, b, e, C);
}
void HighwayBf16(const HighwayFwd<bf16>& w, const NormFwd<bf16>& norm, Index b, Index e, Index C) {
  HighwayTokens(w, norm, b, e, C);
}
// rows: the four of HighwayPart, `stride` apart.
void HighwayBackwardF32(const HighwayBwd<float>& w, const NormBwd& norm, float* rows, Index stride, Index b,
                        Index e, Index C) {
  HighwayTokensBackward(w, norm, {rows, rows + stride, rows + 2 * stride, rows + 3 * stride}, b, e, C);
}
void HighwayBackwardBf16(const HighwayBwd<bf16>& w, const NormBwd& norm, float* rows, Index stride, Index b,
                         Index e, Index C) {
  HighwayTokensBackward(w, norm, {rows, rows + stride, rows + 2 * stride, rows + 3 * stride}, b, e, C);
}

}  // namespace HWY_NAMESPACE
}  // namespace ddl
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ddl {

HWY_EXPORT(NormTokensF32);
HWY_EXPORT(NormTokensBf16);
HWY_EXPORT(NormTokensBackward);
HWY_EXPORT(DecayF32);
HWY_EXPORT(DecayBf16);
HWY_EXPORT(DecayBackwardF32);
HWY_EXPORT(DecayBackwardBf16);
HWY_EXPORT(HighwayF32);
HWY_EXPORT(HighwayBf16);
HWY_EXPORT(HighwayBackwardF32);
HWY_EXPORT(HighwayBackwardBf16);

namespace {

// Rows of gradients that a part of the tokens may collect, each of C floats rounded up.
constexpr Index kElementwiseRows = 4;
Index elementwise_row(Index C) { return round_up(C, 16); }

// body(row, begin, end) over the parts of the tokens, with the part's rows of scratch at zero.
template <class Body>
void for_elementwise_parts(float* scratch, Index N, Index C, const Exec& ex, const Body& body) {
  DDL_CHECK(C >= 1 && C <= kMaxWidth, "C={}", C);
  const Index stride = kElementwiseRows * elementwise_row(C);
  parallel_for(kSumParts, ex, [&](Index p) {
    const Index begin = part_begin(N, p), end = part_begin(N, p + 1);
    if (begin == end) return;
    float* row = scratch + p * stride;
    std::memset(row, 0, static_cast<std::size_t>(stride) * sizeof(float));
    body(row, begin, end);
  });
}

// dst += the parts' sums in row `row`.
void join_elementwise(float* dst, const float* scratch, Index row, Index count, Index N, Index C,
                      const Exec& ex) {
  add_parts_in_order(dst, scratch + row * elementwise_row(C), kElementwiseRows * elementwise_row(C), count, N,
                     ex);
}

}  // namespace

Index elementwise_residual_scratch(Index C) { return kSumParts * kElementwiseRows * elementwise_row(C); }

template <class T>
void norm_fwd(const NormFwd<T>& norm, const float* x_NC, Index N, Index C, const Exec& ex) {
  parallel_chunks(N, kTokensPerTask, ex, [&](Index begin, Index end) {
    if constexpr (std::is_same_v<T, float>)
      DDL_DISPATCH(NormTokensF32, norm, x_NC, begin, end, C);
    else
      DDL_DISPATCH(NormTokensBf16, norm, x_NC, begin, end, C);
  });
}

void norm_bwd(float* dx_NC, const float* dstate_NC, const float* more_NC, const NormBwd& norm,
              const float* x_NC, float* scratch, Index N, Index C, const Exec& ex) {
  for_elementwise_parts(scratch, N, C, ex, [&](float* row, Index begin, Index end) {
    DDL_DISPATCH(NormTokensBackward, dx_NC, dstate_NC, more_NC, norm, x_NC, row, begin, end, C);
  });
  join_elementwise(norm.dnorm_C, scratch, 0, C, N, C, ex);
}

template <class T>
void decay_fwd(const DecayFwd<T>& write, const NormFwd<T>& norm, Index N, Index C, const Exec& ex) {
  parallel_chunks(N, kTokensPerTask, ex, [&](Index begin, Index end) {
    if constexpr (std::is_same_v<T, float>)
      DDL_DISPATCH(DecayF32, write, norm, begin, end, C);
    else
      DDL_DISPATCH(DecayBf16, write, norm, begin, end, C);
  });
}

template <class T>
void decay_bwd(const DecayBwd<T>& write, const NormBwd& norm, float* scratch, Index N, Index C,
               const Exec& ex) {
  for_elementwise_parts(scratch, N, C, ex, [&](float* row, Index begin, Index end) {
    float* da_db = row + elementwise_row(C);
    if constexpr (std::is_same_v<T, float>)
      DDL_DISPATCH(DecayBackwardF32, write, norm, row, da_db, begin, end, C);
    else
      DDL_DISPATCH(DecayBackwardBf16, write, norm, row, da_db, begin, end, C);
  });
  join_elementwise(norm.dnorm_C, scratch, 0, C, N, C, ex);
  join_elementwise(write.da, scratch, 1, 1, N, C, ex);
  join_elementwise(write.db, scratch + 1, 1, 1, N, C, ex);
}

template <class T>
void highway_fwd(const HighwayFwd<T>& write, const NormFwd<T>& norm, Index N, Index C, const Exec& ex) {
  parallel_chunks(N, kTokensPerTask, ex, [&](Index begin, Index end) {
    if constexpr (std::is_same_v<T, float>)
      DDL_DISPATCH(HighwayF32, write, norm, begin, end, C);
    else
      DDL_DISPATCH(HighwayBf16, write, norm, begin, end, C);
  });
}

template <class T>
void highway_bwd(const HighwayBwd<T>& write, const NormBwd& norm, float* scratch, Index N, Index C,
                 const Exec& ex) {
  for_elementwise_parts(scratch, N, C, ex, [&](float* row, Index begin, Index end) {
    if constexpr (std::is_same_v<T, float>)
      DDL_DISPATCH(HighwayBackwardF32, write, norm, row, elementwise_row(C), begin, end, C);
    else
      DDL_DISPATCH(HighwayBackwardBf16, write, norm, row, elementwise_row(C), begin, end, C);
  });
  join_elementwise(norm.dnorm_C, scratch, 0, C, N, C, ex);
  join_elementwise(write.dw_C, scratch, 1, C, N, C, ex);
  join_elementwise(write.dbias_C, scratch, 2, C, N, C, ex);
  join_elementwise(write.dnorm_C, scratch, 3, C, N, C, ex);
}

template void norm_fwd(const NormFwd<float>&, const float*, Index, Index, const Exec&);
template void norm_fwd(const NormFwd<bf16>&, const float*, Index, Index, const Exec&);
template void decay_fwd(const DecayFwd<float>&, const NormFwd<float>&, Index, Index, const Exec&);
template void decay_fwd(const DecayFwd<bf16>&, const NormFwd<bf16>&, Index, Index, const Exec&);
template void decay_bwd(const DecayBwd<float>&, const NormBwd&, float*, Index, Index, const Exec&);
template void decay_bwd(const DecayBwd<bf16>&, const NormBwd&, float*, Index, Index, const Exec&);
template void highway_fwd(const HighwayFwd<float>&, const NormFwd<float>&, Index, Index, const Exec&);
template void highway_fwd(const HighwayFwd<bf16>&, const NormFwd<bf16>&, Index, Index, const Exec&);
template void highway_bwd(const HighwayBwd<float>&, const NormBwd&, float*, Index, Index, const Exec&);
template void highway_bwd(const HighwayBwd<bf16>&, const NormBwd&, float*, Index, Index, const Exec&);

}  // namespace ddl
#endif  // HWY_ONCE
