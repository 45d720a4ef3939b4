#include "kernels/softmax_xent.h"

#include "kernels/kernel_test.h"
#include "ref/ops.h"

namespace ddl::softmax_xent_test {
namespace {

// sum_n loss_n over the rows that count, by the oracle (whose mean runs over those rows).
template <class Num>
Num total_loss(const std::vector<Num>& logits, const std::vector<std::int32_t>& target, double scale,
               Index V) {
  Num sum(0);
  for (std::size_t n = 0; n < target.size(); ++n) {
    if (target[n] < 0) continue;
    std::vector<Num> z(logits.begin() + n * V, logits.begin() + (n + 1) * V);
    for (Num& x : z) x *= scale;
    sum += ref::cross_entropy(z, {target[n]}, 1, V);
  }
  return sum;
}

// (softmax - onehot) * scale * grad_scale; `onehot` = 0 makes a mutant of it.
std::vector<double> gradient(const std::vector<double>& logits, const std::vector<std::int32_t>& target,
                             double scale, double grad_scale, Index V, double onehot = 1) {
  std::vector<double> g(logits.size());
  for (std::size_t n = 0; n < target.size(); ++n) {
    if (target[n] < 0) continue;
    std::vector<double> z(logits.begin() + n * V, logits.begin() + (n + 1) * V);
    for (double& x : z) x *= scale;
    const double lse = ref::logsumexp(z, 1, V)[0];
    for (Index v = 0; v < V; ++v)
      g[n * V + v] = grad_scale * scale * (std::exp(z[v] - lse) - (v == target[n] ? onehot : 0));
  }
  return g;
}

template <class Grad>
void check_xent(double storage_epsilon) {
  const float scale = 0.75f, grad_scale = 0.3f;
  for (Index V : {1, 2, 7, 8, 9, 33, 2047, 2048, 2049, 5003}) {
    const Index N = 4, roundings = V + 12;
    const auto x = normals(N * V, 1, 3.0);
    const std::vector<std::int32_t> target = {static_cast<std::int32_t>(V - 1), -1, 0,
                                              static_cast<std::int32_t>(V / 2)};
    const Buffer<float> logits(x);
    Buffer<Grad> dlogits(N * V);
    Buffer<float> loss(N), loss_only(N);
    Buffer<std::uint8_t> correct(N);
    softmax_xent_fwd_bwd(dlogits.data(), loss.data(), correct.data(), logits.data(), target.data(), scale,
                         grad_scale, N, V, Exec{});
    softmax_xent_fwd(loss_only.data(), nullptr, logits.data(), target.data(), scale, N, V, Exec{});
    ASSERT_EQ(loss_only.values(), loss.values());
    ASSERT_TRUE(dlogits.intact() && loss.intact() && correct.intact());

    const auto expected = gradient(x, target, scale, grad_scale, V);
    if (V <= 33) {  // the formula above is itself checked
      const auto slopes = oracle_gradient(x, [&](const std::vector<Complex>& z) {
        return total_loss(z, target, scale, V) * double(grad_scale);
      });
      for (Index i = 0; i < N * V; ++i) ASSERT_NEAR(expected[i], slopes[i], 1e-14);
    }
    ASSERT_LT(rounding_ratio(dlogits.values(), expected, roundings, storage_epsilon), 1) << V;
    for (Index n = 0; n < N; ++n) {
      std::vector<double> z(x.begin() + n * V, x.begin() + (n + 1) * V);
      for (double& value : z) value *= scale;
      const bool counts = target[n] >= 0;
      const double row_lse = counts ? ref::logsumexp(z, 1, V)[0] : 0, z_target = counts ? z[target[n]] : 0;
      const bool best = counts && z_target == *std::max_element(z.begin(), z.end());
      // Sizes that were added: the loss's own terms.
      const double size = 1 + std::abs(row_lse) + std::abs(z_target);
      ASSERT_LT(rounding_ratio({loss[n] / size + 1}, {(row_lse - z_target) / size + 1}, roundings), 1);
      ASSERT_EQ(correct[n], best);
    }
    // Mutants: no onehot; the logit scale forgotten in the gradient; ignored rows that count.
    if (V > 1) {
      ASSERT_GT(rounding_ratio(dlogits.values(), gradient(x, target, scale, grad_scale, V, 0), roundings,
                               storage_epsilon),
                1);
      ASSERT_GT(rounding_ratio(dlogits.values(), gradient(x, target, scale, grad_scale / scale, V), roundings,
                               storage_epsilon),
                1);
      auto counted = target;
      counted[1] = 0;
      ASSERT_GT(rounding_ratio(dlogits.values(), gradient(x, counted, scale, grad_scale, V), roundings,
                               storage_epsilon),
                1);
    }
  }
}

TEST(SoftmaxXent, F32) { check_xent<float>(0); }
TEST(SoftmaxXent, Bf16) { check_xent<bf16>(kBf16Epsilon); }

// Every log-probability of a row from two numbers: those of the loss, to the bit of the rounding to f32.
TEST(SoftmaxXent, StatsGiveEveryLogProbability) {
  const float scale = 0.75f;
  for (Index V : {1, 9, 2049}) {
    const Index N = 5;
    const Buffer<float> logits(normals(N * V, 1, 3.0));
    std::vector<SoftmaxStats> stats(N);
    softmax_stats(stats.data(), logits.data(), scale, N, V, Exec{.threads = 2});
    Buffer<float> loss(N);
    for (Index v : {Index{0}, V / 2, V - 1}) {
      const std::vector<std::int32_t> target(N, static_cast<std::int32_t>(v));
      softmax_xent_fwd(loss.data(), nullptr, logits.data(), target.data(), scale, N, V, Exec{});
      for (Index n = 0; n < N; ++n) {
        const double z =
            static_cast<double>(scale) * (static_cast<double>(logits[n * V + v]) - stats[n].largest);
        EXPECT_EQ(static_cast<float>(stats[n].log_sum - z), loss[n]) << V << " " << v;
      }
    }
  }
}

TEST(SoftmaxXent, HugeLogits) {
  const Index V = 5;
  const Buffer<float> logits(
      std::vector<double>{1e30, -1e30, 0, 1e30, 3, /**/ -3e38, -3e38, -3e38, -3e38, -3e38});
  const std::vector<std::int32_t> target = {0, 2};
  Buffer<float> dlogits(2 * V), loss(2);
  Buffer<std::uint8_t> correct(2);
  softmax_xent_fwd_bwd(dlogits.data(), loss.data(), correct.data(), logits.data(), target.data(), 1.0f, 1.0f,
                       2, V, Exec{});
  EXPECT_NEAR(loss[0], std::log(2.0), 1e-6);
  EXPECT_NEAR(loss[1], std::log(5.0), 1e-6);
  EXPECT_LT(rounding_ratio(dlogits.values(), {-.5, 0, 0, .5, 0, .2, .2, -.8, .2, .2}, V + 12), 1);
  EXPECT_EQ(correct.values(), (std::vector<double>{1, 1}));
}

TEST(SoftmaxXent, NanShows) {
  Buffer<float> logits(normals(19, 1)), dlogits(19), loss(1);
  logits[11] = std::nanf("");
  const std::int32_t target = 3;
  softmax_xent_fwd_bwd(dlogits.data(), loss.data(), nullptr, logits.data(), &target, 1.0f, 1.0f, 1, 19,
                       Exec{});
  EXPECT_TRUE(std::isnan(loss[0]));
}

// Softmax weights relative to the largest are exp(x): the kernel's exponential against the library's, over
// its range. In half ulps: four of its own, one of the product with 1/sum, and the argument x log2(e), where
// the constant and the product are each off by half an ulp of a number of that size.
TEST(SoftmaxXent, ExponentialIsAccurateOverItsRange) {
  const Index V = 20001;
  std::vector<double> x(V);
  for (Index v = 0; v < V; ++v) x[v] = to_float(from_float<float>(static_cast<float>(-86.0 * double(v) / V)));
  const Buffer<float> logits(x);
  Buffer<float> dlogits(V), loss(1);
  const std::int32_t target = V - 1;
  softmax_xent_fwd_bwd(dlogits.data(), loss.data(), nullptr, logits.data(), &target, 1.0f, 1.0f, 1, V,
                       Exec{});
  const double at_zero = dlogits[0];
  for (Index v = 0; v + 1 < V; ++v) {
    ASSERT_NEAR(dlogits[v] / at_zero / std::exp(x[v]), 1, (5 + 2 * std::abs(x[v])) * 0x1p-24) << x[v];
  }
}

TEST(SoftmaxXent, ThreadsAndInPlaceGiveTheSameBits) {
  const Index N = 41, V = 1001;
  const auto x = normals(N * V, 1, 3.0);
  std::vector<std::int32_t> target(N);
  for (Index n = 0; n < N; ++n) target[n] = static_cast<std::int32_t>(n * 17 % V);
  std::vector<double> first_loss, first_gradient;
  for (int threads : {1, 2, 3}) {
    Buffer<float> logits(x), dlogits(N * V), loss(N);
    softmax_xent_fwd_bwd(dlogits.data(), loss.data(), nullptr, logits.data(), target.data(), 1.0f, 0.1f, N, V,
                         Exec{.threads = threads});
    softmax_xent_fwd_bwd(logits.data(), loss.data(), nullptr, logits.data(), target.data(), 1.0f, 0.1f, N, V,
                         Exec{.threads = threads});
    EXPECT_EQ(logits.values(), dlogits.values());
    if (threads == 1) first_loss = loss.values(), first_gradient = dlogits.values();
    EXPECT_EQ(loss.values(), first_loss);
    EXPECT_EQ(dlogits.values(), first_gradient);
  }
}

}  // namespace
}  // namespace ddl::softmax_xent_test
