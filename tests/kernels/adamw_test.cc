#include "kernels/adamw.h"

#include <cstdint>

#include "kernels/kernel_test.h"

namespace ddl::adamw_test {
namespace {

struct State {
  std::vector<double> p, m, v;
};

// What a mutant leaves out.
enum class Without { kNothing, kBiasCorrection, kWeightDecay, kGradScale };

void oracle_step(State& s, const std::vector<double>& gradient, const AdamW& o, Without without) {
  const double t = static_cast<double>(o.step);
  const bool corrected = without != Without::kBiasCorrection;
  for (std::size_t i = 0; i < s.p.size(); ++i) {
    const double g = gradient[i] * (without == Without::kGradScale ? 1 : o.grad_scale);
    s.m[i] = o.beta1 * s.m[i] + (1 - o.beta1) * g;
    s.v[i] = o.beta2 * s.v[i] + (1 - o.beta2) * g * g;
    const double m_hat = corrected ? s.m[i] / (1 - std::pow(o.beta1, t)) : s.m[i];
    const double v_hat = corrected ? s.v[i] / (1 - std::pow(o.beta2, t)) : s.v[i];
    const double decay = without == Without::kWeightDecay ? 0 : o.weight_decay * s.p[i];
    s.p[i] -= o.lr * (m_hat / (std::sqrt(v_hat) + o.eps) + decay);
  }
}

TEST(AdamW, ThreeSteps) {
  for (Index n : {0, 1, 3, 7, 8, 9, 16, 17, 33, 16384, 40001})
    for (int threads : {1, 2, 3}) {
      const Exec ex{.threads = threads};
      const auto start = normals(n, 1);
      Buffer<float> p(start), m(n), v(n), g(n);
      Buffer<bf16> copy(n);
      const std::vector<double> zeros(n);
      State right{start, zeros, zeros};
      State mutants[] = {right, right, right};
      const Without left_out[] = {Without::kBiasCorrection, Without::kWeightDecay, Without::kGradScale};
      AdamW o{.lr = 0.01, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-3, .weight_decay = 0.1, .grad_scale = 0.4};
      for (o.step = 1; o.step <= 3; ++o.step) {
        const auto gradient = normals(n, 10 + static_cast<std::uint64_t>(o.step));
        for (Index i = 0; i < n; ++i) g[i] = static_cast<float>(gradient[i]);
        const bool zero_grad = o.step != 2;
        adamw_step(p.data(), m.data(), v.data(), o.step == 1 ? nullptr : copy.data(), g.data(), zero_grad, o,
                   n, ex);
        ASSERT_EQ(g.values(), zero_grad ? zeros : gradient);
        oracle_step(right, gradient, o, Without::kNothing);
        for (int i = 0; i < 3; ++i) oracle_step(mutants[i], gradient, o, left_out[i]);
      }
      ASSERT_LT(rounding_ratio(p.values(), right.p, 3 * 10), 1) << n;
      ASSERT_LT(rounding_ratio(m.values(), right.m, 3 * 4), 1) << n;
      ASSERT_LT(rounding_ratio(v.values(), right.v, 3 * 5), 1) << n;
      for (Index i = 0; i < n; ++i) ASSERT_EQ(copy[i], to_bf16(p[i]));
      ASSERT_TRUE(p.intact() && m.intact() && v.intact() && g.intact() && copy.intact());
      if (n > 0) {
        for (const State& mutant : mutants) ASSERT_GT(rounding_ratio(p.values(), mutant.p, 3 * 10), 1);
      }
    }
}

TEST(AdamW, ZeroGradientsMoveNothing) {  // 0 / (0 + eps) is 0, not NaN
  Buffer<float> p(normals(19, 1)), m(19), v(19), g(19);
  const auto before = p.values();
  adamw_step(p.data(), m.data(), v.data(), nullptr, g.data(), false, AdamW{}, 19, Exec{});
  EXPECT_EQ(p.values(), before);
}

TEST(AdamW, SumOfSquares) {
  for (Index n : {0, 1, 3, 7, 8, 9, 33, 4095, 4096, 4097, 300001}) {
    const Buffer<float> x(normals(n, 1));
    double expected = 0, mutant = 0;  // the mutant misses the last hundredth
    for (Index i = 0; i < n; ++i) {
      expected += double(x[i]) * x[i];
      if (i + 1 + n / 100 < n) mutant += double(x[i]) * x[i];
    }
    const double one = sum_of_squares(x.data(), n, Exec{.threads = 1});
    EXPECT_LT(rounding_ratio({one}, {expected}, 4096 + 1), 1);
    if (n > 0) {
      EXPECT_GT(rounding_ratio({one}, {mutant}, 4096 + 1), 1);
    }
    for (int threads : {2, 3}) EXPECT_EQ(sum_of_squares(x.data(), n, Exec{.threads = threads}), one);
  }
}

}  // namespace
}  // namespace ddl::adamw_test
