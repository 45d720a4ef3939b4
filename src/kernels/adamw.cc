#include "kernels/adamw.h"

#include "core/error.h"
#include "kernels/ordered_sums.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/adamw.cc"
#include <hwy/foreach_target.h>

#include "kernels/simd-inl.h"

#ifndef DDL_KERNELS_ADAMW_ONCE_
#define DDL_KERNELS_ADAMW_ONCE_
namespace ddl {
// The options folded into what one element needs.
struct AdamWFactors {
  float grad_scale, beta1, one_minus_beta1, beta2, one_minus_beta2;
  float keep;         // 1 - lr weight_decay
  float rate;         // lr / (1 - beta1^step)
  float root_factor;  // 1 / sqrt(1 - beta2^step)
  float eps;
  bool zero_grad;
};
}  // namespace ddl
#endif

HWY_BEFORE_NAMESPACE();
namespace ddl {
namespace HWY_NAMESPACE {

// m = beta1 m + (1 - beta1) g
// v = beta2 v + (1 - beta2) g^2
// p = p (1 - lr weight_decay) - lr (m / (1 - beta1^step)) / (sqrt(v / (1 - beta2^step)) + eps)
void AdamWRange(float* p_n, float* m_n, float* v_n, bf16* copy_n, float* g_n, const AdamWFactors& f,
                Index n) {
  ForEach(n, [&](auto d, Index i) HWY_ATTR {
    const auto g = hn::Mul(LoadF(d, g_n + i), hn::Set(d, f.grad_scale));
    const auto m =
        hn::MulAdd(hn::Set(d, f.beta1), LoadF(d, m_n + i), hn::Mul(hn::Set(d, f.one_minus_beta1), g));
    const auto v = hn::MulAdd(hn::Set(d, f.beta2), LoadF(d, v_n + i),
                              hn::Mul(hn::Set(d, f.one_minus_beta2), hn::Mul(g, g)));
    const auto root = hn::MulAdd(hn::Sqrt(v), hn::Set(d, f.root_factor), hn::Set(d, f.eps));
    const auto move = hn::Div(hn::Mul(hn::Set(d, f.rate), m), root);
    const auto p = hn::MulSub(LoadF(d, p_n + i), hn::Set(d, f.keep), move);
    StoreF(p, d, p_n + i);
    StoreF(m, d, m_n + i);
    StoreF(v, d, v_n + i);
    if (copy_n) StoreF(p, d, copy_n + i);
    if (f.zero_grad) StoreF(hn::Zero(d), d, g_n + i);
  });
}

float SumOfSquaresRun(const float* x_n, Index n) {
  return Sum(n, [&](auto d, Index i) HWY_ATTR {
    const auto x = LoadF(d, x_n + i);
    return hn::Mul(x, x);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace ddl
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <cmath>

namespace ddl {

HWY_EXPORT(AdamWRange);
HWY_EXPORT(SumOfSquaresRun);

void adamw_step(float* p_n, float* m_n, float* v_n, bf16* copy_n, float* g_n, bool zero_grad,
                const AdamW& options, Index n, const Exec& ex) {
  DDL_CHECK(options.step >= 1, "step {}", options.step);
  const double step = static_cast<double>(options.step);
  AdamWFactors f{};
  f.grad_scale = static_cast<float>(options.grad_scale);
  f.beta1 = static_cast<float>(options.beta1);
  f.one_minus_beta1 = static_cast<float>(1 - options.beta1);
  f.beta2 = static_cast<float>(options.beta2);
  f.one_minus_beta2 = static_cast<float>(1 - options.beta2);
  f.keep = static_cast<float>(1 - options.lr * options.weight_decay);
  f.rate = static_cast<float>(options.lr / (1 - std::pow(options.beta1, step)));
  f.root_factor = static_cast<float>(1 / std::sqrt(1 - std::pow(options.beta2, step)));
  f.eps = static_cast<float>(options.eps);
  f.zero_grad = zero_grad;
  parallel_chunks(n, kElementsPerTask, ex, [&](Index begin, Index end) {
    DDL_DISPATCH(AdamWRange, p_n + begin, m_n + begin, v_n + begin, copy_n ? copy_n + begin : nullptr,
                 g_n + begin, f, end - begin);
  });
}

double sum_of_squares(const float* x_n, Index n, const Exec& ex) {
  constexpr Index kRun = 4096, kSums = 256;
  const Index piece = std::max(kRun, round_up(ceil_div(n, kSums), kRun));
  double sums[kSums] = {};
  parallel_chunks(n, piece, ex, [&](Index begin, Index end) {
    double sum = 0;
    for (Index i = begin; i < end; i += kRun)
      sum += static_cast<double>(DDL_DISPATCH(SumOfSquaresRun, x_n + i, std::min(kRun, end - i)));
    sums[begin / piece] = sum;
  });
  double total = 0;
  for (double sum : sums) total += sum;
  return total;
}

}  // namespace ddl
#endif
