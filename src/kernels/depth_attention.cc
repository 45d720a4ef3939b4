#include "kernels/depth_attention.h"

#include <cmath>
#include <cstring>
#include <type_traits>

#include "kernels/ordered_sums.h"
#include "kernels/residual_pass.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/depth_attention.cc"
#include <hwy/foreach_target.h>

#include "kernels/norm_row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ddl {
namespace HWY_NAMESPACE {

// sums[k * stride + g] = a_k . rows[g],  k < K,  g < G. Asks for the next token's rows meanwhile: there are more
// streams of them than the hardware follows.
template <Index K, Index G, class V>
HWY_INLINE void DotsOfRows(float* sums, Index stride, const float* const* a, const V* const* rows, Index C) {
  const Full d;
  const Index lanes = static_cast<Index>(hn::Lanes(d));
  Vec total[K][G];
  for (Index k = 0; k < K; ++k)
    for (Index g = 0; g < G; ++g) total[k][g] = hn::Zero(d);
  Index i = 0;
  for (; i + lanes <= C; i += lanes)
    for (Index g = 0; g < G; ++g) {
      hwy::Prefetch(rows[g] + C + i);
      const Vec v = LoadF(d, rows[g] + i);
      for (Index k = 0; k < K; ++k) total[k][g] = hn::MulAdd(hn::LoadU(d, a[k] + i), v, total[k][g]);
    }
  for (Index k = 0; k < K; ++k)
    for (Index g = 0; g < G; ++g) sums[k * stride + g] = hn::GetLane(hn::SumOfLanes(d, total[k][g]));
  for (; i < C; ++i)
    for (Index k = 0; k < K; ++k)
      for (Index g = 0; g < G; ++g) sums[k * stride + g] += a[k][i] * to_float(rows[g][i]);
}

// The token's rows of a group of sources V_{j+1} .. V_{j+G}.
template <Index G, class V>
HWY_INLINE void RowsOf(const V** rows, const DepthSources<V>& s, Index j, Index n, Index C) {
  for (Index g = 0; g < G; ++g) rows[g] = s.others_NC[j + g] + n * C;
}

// sums[k * stride + i] = a_k . V_i for all sources.
template <Index K, class V>
HWY_INLINE void DotsOfSources(float* sums, Index stride, const float* const* a, const DepthSources<V>& s,
                              Index n, Index C) {
  const float* first = s.first_NC + n * C;
  DotsOfRows<K, 1>(sums, stride, a, &first, C);
  ForGroups(s.count - 1, [&](Index j, auto G) HWY_ATTR {
    const V* rows[G];
    RowsOf<G>(rows, s, j, n, C);
    DotsOfRows<K, G>(sums + 1 + j, stride, a, rows, C);
  });
}

// x_in = sum_i alpha_i V_i
template <class V>
HWY_INLINE void MixSources(float* HWY_RESTRICT x_in, const float* alpha, const DepthSources<V>& s, Index n,
                           Index C) {
  const float* first = s.first_NC + n * C;
  ForEach(C, [&](auto d, Index i) HWY_ATTR {
    hn::StoreU(hn::Mul(hn::Set(d, alpha[0]), hn::LoadU(d, first + i)), d, x_in + i);
  });
  ForGroups(s.count - 1, [&](Index j, auto G) HWY_ATTR {
    const V* rows[G];
    RowsOf<G>(rows, s, j, n, C);
    ForEach(C, [&](auto d, Index i) HWY_ATTR {
      auto sum = hn::LoadU(d, x_in + i);
      for (Index g = 0; g < G; ++g)
        sum = hn::MulAdd(hn::Set(d, alpha[1 + j + g]), LoadF(d, rows[g] + i), sum);
      hn::StoreU(sum, d, x_in + i);
    });
  });
}

// alpha = softmax(alpha) over I logits
HWY_INLINE void SoftmaxRow(float* alpha, Index I) {
  float largest = alpha[0], total = 0;
  for (Index i = 1; i < I; ++i) largest = HWY_MAX(largest, alpha[i]);
  for (Index i = 0; i < I; ++i) total += alpha[i] = std::exp(alpha[i] - largest);
  for (Index i = 0; i < I; ++i) alpha[i] /= total;
}

template <class T, class V>
void DepthTokens(const DepthRead<T>& r, const DepthWrite<T, V>* write, const DepthSources<V>& s, Index begin,
                 Index end, Index C) {
  float x_in[kMaxWidth];
  const Index I = s.count;
  for (Index n = begin; n < end; ++n) {
    if (write) {
      V* newest = write->newest_NC + n * C;
      const T* h = write->h_NC + n * C;
      const bool fresh = write->mode == Write::kOverwrite;
      ForEach(C, [&](auto d, Index i) HWY_ATTR {
        auto v = LoadF(d, h + i);
        if (!fresh) v = hn::Add(LoadF(d, newest + i), v);
        StoreF(v, d, newest + i);
      });
    }
    r.newest_rho_N[n] = I == 1 ? ReciprocalRms(s.first_NC + n * C, s.eps, C)
                               : ReciprocalRms(s.others_NC[I - 2] + n * C, s.eps, C);
    float* alpha = r.alpha_NI + n * I;
    if (I == 1) {
      alpha[0] = 1;
      r.rstd_N[n] = NormRow(r.context_NC + n * C, s.first_NC + n * C, s.norm_C, s.norm_eps, C);
      continue;
    }
    DotsOfSources<1>(alpha, I, &s.q_C, s, n, C);
    for (Index i = 0; i < I; ++i) alpha[i] *= s.rho_N[i][n];
    SoftmaxRow(alpha, I);
    MixSources(x_in, alpha, s, n, C);
    r.rstd_N[n] = NormRow(r.context_NC + n * C, x_in, s.norm_C, s.norm_eps, C);
  }
}

// With g the gradient of x_in:
//   dl_i  = alpha_i (V_i . g - sum_j alpha_j V_j . g)                  gradient of the logit rho_i q . V_i
//   dV_i += alpha_i g + dl_i rho_i (q - V_i rho_i^2 (q . V_i) / C)
//   dq   += sum_i dl_i rho_i V_i
template <class T, class V>
void DepthTokensBackward(const DepthReadBwd<T, V>& r, const DepthSources<V>& s, float* HWY_RESTRICT dnorm_C,
                         float* HWY_RESTRICT dq_C, Index begin, Index end, Index C) {
  float x_in[kMaxWidth], g_row[kMaxWidth];
  float dots[2 * kMaxSources];  // V_i . g, then V_i . q
  float *along_q = dots,
        *along_V = dots + s.count;  // in their place: dl_i rho_i, and what V_i is taken back by
  const Index I = s.count;
  const bool fresh = r.mode == Write::kOverwrite;
  for (Index n = begin; n < end; ++n) {
    const float* first = s.first_NC + n * C;
    float* dfirst = r.dfirst_NC + n * C;
    const float* dcontext = r.dcontext_NC + n * C;
    if (I == 1) {
      NormRowBackward(dnorm_C, dcontext, first, s.norm_C, r.rstd_N[n], C,
                      [&](auto d, Index i, auto dx) HWY_ATTR {
                        if (!fresh) dx = hn::Add(hn::LoadU(d, dfirst + i), dx);
                        hn::StoreU(dx, d, dfirst + i);
                      });
      continue;
    }
    const float* alpha = r.alpha_NI + n * I;
    MixSources(x_in, alpha, s, n, C);
    NormRowBackward(dnorm_C, dcontext, x_in, s.norm_C, r.rstd_N[n], C,
                    [&](auto d, Index i, auto dx) HWY_ATTR { hn::StoreU(dx, d, g_row + i); });
    const float* g_and_q[2] = {g_row, s.q_C};
    DotsOfSources<2>(dots, I, g_and_q, s, n, C);
    float mean = 0;
    for (Index i = 0; i < I; ++i) mean += alpha[i] * dots[i];
    for (Index i = 0; i < I; ++i) {
      const float rho = s.rho_N[i][n], V_q = dots[I + i];
      along_q[i] = alpha[i] * (dots[i] - mean) * rho;
      along_V[i] = along_q[i] * rho * rho * V_q / static_cast<float>(C);
    }

    // dV = before + alpha g + along_q q - along_V v
    const auto gradient_at = [&](auto d, Index source, auto before, auto v, auto g, auto q) HWY_ATTR {
      before = hn::MulAdd(hn::Set(d, alpha[source]), g, before);
      before = hn::MulAdd(hn::Set(d, along_q[source]), q, before);
      return hn::NegMulAdd(hn::Set(d, along_V[source]), v, before);
    };
    const Index last = I - 1;  // the newest
    ForEach(C, [&](auto d, Index i) HWY_ATTR {
      const auto g = hn::LoadU(d, g_row + i), q = hn::LoadU(d, s.q_C + i), v = hn::LoadU(d, first + i);
      const auto before = fresh ? hn::Zero(d) : hn::LoadU(d, dfirst + i);
      hwy::Prefetch(dfirst + C + i);
      hn::StoreU(gradient_at(d, 0, before, v, g, q), d, dfirst + i);
      hn::StoreU(hn::MulAdd(hn::Set(d, along_q[0]), v, hn::LoadU(d, dq_C + i)), d, dq_C + i);
    });
    ForGroups(last - 1, [&](Index j, auto G) HWY_ATTR {
      const V* rows[G];
      float* drows[G];
      RowsOf<G>(rows, s, j, n, C);
      for (Index k = 0; k < G; ++k) drows[k] = r.dothers_NC[j + k] + n * C;
      ForEach(C, [&](auto d, Index i) HWY_ATTR {
        const auto g = hn::LoadU(d, g_row + i), q = hn::LoadU(d, s.q_C + i);
        auto dq = hn::LoadU(d, dq_C + i);
        for (Index k = 0; k < G; ++k) {
          hwy::Prefetch(drows[k] + C + i);
          const auto v = LoadF(d, rows[k] + i);
          const auto before = fresh ? hn::Zero(d) : hn::LoadU(d, drows[k] + i);
          hn::StoreU(gradient_at(d, 1 + j + k, before, v, g, q), d, drows[k] + i);
          dq = hn::MulAdd(hn::Set(d, along_q[1 + j + k]), v, dq);
        }
        hn::StoreU(dq, d, dq_C + i);
      });
    });
    const V* row = s.others_NC[last - 1] + n * C;
    float* drow = r.dothers_NC[last - 1] ? r.dothers_NC[last - 1] + n * C : nullptr;  // null: fresh
    V* newest = r.newest_NC ? r.newest_NC + n * C : nullptr;
    ForEach(C, [&](auto d, Index i) HWY_ATTR {
      const auto g = hn::LoadU(d, g_row + i), q = hn::LoadU(d, s.q_C + i), v = LoadF(d, row + i);
      const auto before = fresh ? hn::Zero(d) : hn::LoadU(d, drow + i);
      const auto dv = gradient_at(d, last, before, v, g, q);
      StoreF(dv, d, r.dh_NC + n * C + i);
      hn::StoreU(hn::MulAdd(hn::Set(d, along_q[last]), v, hn::LoadU(d, dq_C + i)), d, dq_C + i);
      if (newest) {
        hn::StoreU(dv, d, drow + i);
        StoreF(hn::Sub(v, LoadF(d, r.h_NC + n * C + i)), d, newest + i);
      }
    });
  }
}

// T, then V.
void DepthF32F32(const DepthRead<float>& r, const DepthWrite<float, float>* w, const DepthSources<float>& s,
                 Index b, Index e, Index C) {
  DepthTokens(r, w, s, b, e, C);
}
void DepthBf16F32(const DepthRead<bf16>& r, const DepthWrite<bf16, float>* w, const DepthSources<float>& s,
                  Index b, Index e, Index C) {
  DepthTokens(r, w, s, b, e, C);
}
void DepthBf16Bf16(const DepthRead<bf16>& r, const DepthWrite<bf16, bf16>* w, const DepthSources<bf16>& s,
                   Index b, Index e, Index C) {
  DepthTokens(r, w, s, b, e, C);
}
void DepthBackwardF32F32(const DepthReadBwd<float, float>& r, const DepthSources<float>& s, float* dnorm,
                         float* dq, Index b, Index e, Index C) {
  DepthTokensBackward(r, s, dnorm, dq, b, e, C);
}
void DepthBackwardBf16F32(const DepthReadBwd<bf16, float>& r, const DepthSources<float>& s, float* dnorm,
                          float* dq, Index b, Index e, Index C) {
  DepthTokensBackward(r, s, dnorm, dq, b, e, C);
}
void DepthBackwardBf16Bf16(const DepthReadBwd<bf16, bf16>& r, const DepthSources<bf16>& s, float* dnorm,
                           float* dq, Index b, Index e, Index C) {
  DepthTokensBackward(r, s, dnorm, dq, b, e, C);
}

}  // namespace HWY_NAMESPACE
}  // namespace ddl
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ddl {

HWY_EXPORT(DepthF32F32);
HWY_EXPORT(DepthBf16F32);
HWY_EXPORT(DepthBf16Bf16);
HWY_EXPORT(DepthBackwardF32F32);
HWY_EXPORT(DepthBackwardBf16F32);
HWY_EXPORT(DepthBackwardBf16Bf16);

namespace {

// A part's gradients: the norm's row, then the query's.
Index depth_row(Index C) { return round_up(C, 16); }

void check_depth_shape(Index sources, Index C) {
  DDL_CHECK(sources >= 1 && sources <= kMaxSources && C >= 1 && C <= kMaxWidth, "I={} C={}", sources, C);
}

}  // namespace

Index depth_attention_scratch(Index C) { return kSumParts * 2 * depth_row(C); }

template <class T, class V>
void depth_attention_fwd(const DepthRead<T>& read, const DepthWrite<T, V>* write,
                         const DepthSources<V>& sources, Index N, Index C, const Exec& ex) {
  check_depth_shape(sources.count, C);
  parallel_chunks(N, kTokensPerTask, ex, [&](Index begin, Index end) {
    if constexpr (std::is_same_v<T, float>)
      DDL_DISPATCH(DepthF32F32, read, write, sources, begin, end, C);
    else if constexpr (std::is_same_v<V, float>)
      DDL_DISPATCH(DepthBf16F32, read, write, sources, begin, end, C);
    else
      DDL_DISPATCH(DepthBf16Bf16, read, write, sources, begin, end, C);
  });
}

template <class T, class V>
void depth_attention_bwd(const DepthReadBwd<T, V>& read, const DepthSources<V>& sources, float* scratch,
                         Index N, Index C, const Exec& ex) {
  check_depth_shape(sources.count, C);
  const Index row = depth_row(C);
  parallel_for(kSumParts, ex, [&](Index p) {
    const Index begin = part_begin(N, p), end = part_begin(N, p + 1);
    if (begin == end) return;
    float *dnorm = scratch + p * 2 * row, *dq = dnorm + row;
    std::memset(dnorm, 0, static_cast<std::size_t>(2 * row) * sizeof(float));
    if constexpr (std::is_same_v<T, float>)
      DDL_DISPATCH(DepthBackwardF32F32, read, sources, dnorm, dq, begin, end, C);
    else if constexpr (std::is_same_v<V, float>)
      DDL_DISPATCH(DepthBackwardBf16F32, read, sources, dnorm, dq, begin, end, C);
    else
      DDL_DISPATCH(DepthBackwardBf16Bf16, read, sources, dnorm, dq, begin, end, C);
  });
  add_parts_in_order(read.dnorm_C, scratch, 2 * row, C, N, ex);
  add_parts_in_order(read.dq_C, scratch + row, 2 * row, C, N, ex);
}

template void depth_attention_fwd(const DepthRead<float>&, const DepthWrite<float, float>*,
                                  const DepthSources<float>&, Index, Index, const Exec&);
template void depth_attention_fwd(const DepthRead<bf16>&, const DepthWrite<bf16, float>*,
                                  const DepthSources<float>&, Index, Index, const Exec&);
template void depth_attention_fwd(const DepthRead<bf16>&, const DepthWrite<bf16, bf16>*,
                                  const DepthSources<bf16>&, Index, Index, const Exec&);
template void depth_attention_bwd(const DepthReadBwd<float, float>&, const DepthSources<float>&, float*,
                                  Index, Index, const Exec&);
template void depth_attention_bwd(const DepthReadBwd<bf16, float>&, const DepthSources<float>&, float*, Index,
                                  Index, const Exec&);
template void depth_attention_bwd(const DepthReadBwd<bf16, bf16>&, const DepthSources<bf16>&, float*, Index,
                                  Index, const Exec&);

}  // namespace ddl
#endif  // HWY_ONCE
