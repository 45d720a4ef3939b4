#include "kernels/softmax_xent.h"

#include <cmath>
#include <type_traits>

#include "core/error.h"
#include "kernels/ordered_sums.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/softmax_xent.cc"
#include <hwy/foreach_target.h>

#include "kernels/exp2-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ddl {
namespace HWY_NAMESPACE {

struct RowStats {
  float largest;  // max_v x_v
  double sum;     // sum_v exp(scale (x_v - largest))
};

// One pass over memory: a block is read for its maximum and, now in L1, again for its exponentials; when a
// block raises the maximum the sum so far is rescaled.
HWY_INLINE RowStats Scan(const float* x_V, float scale, Index V) {
  constexpr Index kBlock = 2048;
  RowStats stats{x_V[0], 0};
  for (Index begin = 0; begin < V; begin += kBlock) {
    const Index n = HWY_MIN(kBlock, V - begin);
    const float* x = x_V + begin;
    const float largest =
        Largest(n, stats.largest, [&](auto d, Index i) HWY_ATTR { return LoadF(d, x + i); });
    if (largest > stats.largest) {
      stats.sum *= std::exp(static_cast<double>(scale) * (stats.largest - static_cast<double>(largest)));
      stats.largest = largest;
    }
    stats.sum += Sum(n, [&](auto d, Index i) HWY_ATTR {
      const auto below = hn::Sub(LoadF(d, x + i), hn::Set(d, largest));
      return QuickExp2(d, hn::Mul(below, hn::Set(d, scale * kLog2E)));
    });
  }
  return stats;
}

// loss = scale (largest - x_target) + log sum
HWY_INLINE void WriteLoss(float* loss_N, std::uint8_t* correct_N, Index n, const RowStats& stats,
                          float x_target, float scale) {
  const double log_sum = std::log(stats.sum);
  loss_N[n] = static_cast<float>(
      static_cast<double>(scale) * (static_cast<double>(stats.largest) - x_target) + log_sum);
  if (correct_N) correct_N[n] = x_target >= stats.largest;
}

HWY_INLINE void WriteIgnored(float* loss_N, std::uint8_t* correct_N, Index n) {
  loss_N[n] = 0;
  if (correct_N) correct_N[n] = 0;
}

void XentLossRows(float* loss_N, std::uint8_t* correct_N, const float* logits_NV,
                  const std::int32_t* target_N, float logit_scale, Index begin, Index end, Index V) {
  for (Index n = begin; n < end; ++n) {
    if (target_N[n] < 0) {
      WriteIgnored(loss_N, correct_N, n);
      continue;
    }
    const float* x_V = logits_NV + n * V;
    WriteLoss(loss_N, correct_N, n, Scan(x_V, logit_scale, V), x_V[target_N[n]], logit_scale);
  }
}

void SoftmaxStatsRows(SoftmaxStats* stats_N, const float* logits_NV, float logit_scale, Index begin,
                      Index end, Index V) {
  for (Index n = begin; n < end; ++n) {
    const RowStats row = Scan(logits_NV + n * V, logit_scale, V);
    stats_N[n] = {row.largest, std::log(row.sum)};
  }
}

// With factor = grad_scale scale:
//   dx_v = factor exp(scale (x_v - largest)) / sum - factor [v = target]
template <class Grad>
HWY_INLINE void XentGradRows(Grad* dlogits_NV, float* loss_N, std::uint8_t* correct_N, const float* logits_NV,
                             const std::int32_t* target_N, float logit_scale, float grad_scale, Index begin,
                             Index end, Index V) {
  const float factor = grad_scale * logit_scale;
  for (Index n = begin; n < end; ++n) {
    const float* x_V = logits_NV + n * V;
    Grad* dx_V = dlogits_NV + n * V;
    if (target_N[n] < 0) {
      WriteIgnored(loss_N, correct_N, n);
      ForEach(V, [&](auto d, Index v) HWY_ATTR { StoreF(hn::Zero(d), d, dx_V + v); });
      continue;
    }
    const Index target = target_N[n];
    const float x_target = x_V[target];  // read before dlogits may overwrite it
    const RowStats stats = Scan(x_V, logit_scale, V);
    WriteLoss(loss_N, correct_N, n, stats, x_target, logit_scale);
    const float share = static_cast<float>(factor / stats.sum);
    ForEach(V, [&](auto d, Index v) HWY_ATTR {
      const auto below = hn::Sub(LoadF(d, x_V + v), hn::Set(d, stats.largest));
      const auto e = QuickExp2(d, hn::Mul(below, hn::Set(d, logit_scale * kLog2E)));
      StoreF(hn::Mul(e, hn::Set(d, share)), d, dx_V + v);
    });
    // The target's own gradient: softmax - 1 from the unrounded parts.
    const double e =
        std::exp(static_cast<double>(logit_scale) * (static_cast<double>(x_target) - stats.largest));
    dx_V[target] = from_float<Grad>(static_cast<float>(factor * ((e - stats.sum) / stats.sum)));
  }
}

void XentGradRowsF32(float* dlogits, float* loss, std::uint8_t* correct_N, const float* logits,
                     const std::int32_t* target, float logit_scale, float grad_scale, Index begin, Index end,
                     Index V) {
  XentGradRows(dlogits, loss, correct_N, logits, target, logit_scale, grad_scale, begin, end, V);
}
void XentGradRowsBf16(bf16* dlogits, float* loss, std::uint8_t* correct_N, const float* logits,
                      const std::int32_t* target, float logit_scale, float grad_scale, Index begin, Index end,
                      Index V) {
  XentGradRows(dlogits, loss, correct_N, logits, target, logit_scale, grad_scale, begin, end, V);
}

}  // namespace HWY_NAMESPACE
}  // namespace ddl
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace ddl {

HWY_EXPORT(XentLossRows);
HWY_EXPORT(SoftmaxStatsRows);
HWY_EXPORT(XentGradRowsF32);
HWY_EXPORT(XentGradRowsBf16);

namespace {
void check_xent(const std::int32_t* target_N, float logit_scale, Index N, Index V) {
  DDL_CHECK(V > 0 && logit_scale > 0, "vocabulary {}, logit scale {}", V, logit_scale);
  for (Index n = 0; n < N; ++n)
    DDL_CHECK(target_N[n] < V, "target {} of row {} outside vocabulary {}", target_N[n], n, V);
}
Index rows_per_claim(Index V) { return 1 + kElementsPerTask / V; }
}  // namespace

void softmax_xent_fwd(float* loss_N, std::uint8_t* correct_N, const float* logits_NV,
                      const std::int32_t* target_N, float logit_scale, Index N, Index V, const Exec& ex) {
  check_xent(target_N, logit_scale, N, V);
  parallel_chunks(N, rows_per_claim(V), ex, [&](Index begin, Index end) {
    DDL_DISPATCH(XentLossRows, loss_N, correct_N, logits_NV, target_N, logit_scale, begin, end, V);
  });
}

void softmax_stats(SoftmaxStats* stats_N, const float* logits_NV, float logit_scale, Index N, Index V,
                   const Exec& ex) {
  DDL_CHECK(V > 0 && logit_scale > 0, "vocabulary {}, logit scale {}", V, logit_scale);
  parallel_chunks(N, rows_per_claim(V), ex, [&](Index begin, Index end) {
    DDL_DISPATCH(SoftmaxStatsRows, stats_N, logits_NV, logit_scale, begin, end, V);
  });
}

template <class Grad>
void softmax_xent_fwd_bwd(Grad* dlogits_NV, float* loss_N, std::uint8_t* correct_N, const float* logits_NV,
                          const std::int32_t* target_N, float logit_scale, float grad_scale, Index N, Index V,
                          const Exec& ex) {
  check_xent(target_N, logit_scale, N, V);
  parallel_chunks(N, rows_per_claim(V), ex, [&](Index begin, Index end) {
    if constexpr (std::is_same_v<Grad, float>)
      DDL_DISPATCH(XentGradRowsF32, dlogits_NV, loss_N, correct_N, logits_NV, target_N, logit_scale,
                   grad_scale, begin, end, V);
    else
      DDL_DISPATCH(XentGradRowsBf16, dlogits_NV, loss_N, correct_N, logits_NV, target_N, logit_scale,
                   grad_scale, begin, end, V);
  });
}

template void softmax_xent_fwd_bwd(float*, float*, std::uint8_t*, const float*, const std::int32_t*, float,
                                   float, Index, Index, const Exec&);
template void softmax_xent_fwd_bwd(bf16*, float*, std::uint8_t*, const float*, const std::int32_t*, float,
                                   float, Index, Index, const Exec&);

}  // namespace ddl
#endif
