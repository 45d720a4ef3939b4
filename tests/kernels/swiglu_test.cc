#include "kernels/swiglu.h"

#include "kernels/kernel_test.h"
#include "ref/ops.h"

namespace ddl::swiglu_test {
namespace {

constexpr Index kRoundings = 12;  // exp, two divisions' worth of sigmoid, the products of the slope

// [a | b] per token -> a and b of all tokens, and back.
template <class Num>
void split(std::vector<Num>& a, std::vector<Num>& b, const std::vector<Num>& both, Index N, Index F) {
  a.resize(N * F), b.resize(N * F);
  for (Index n = 0; n < N; ++n)
    for (Index f = 0; f < F; ++f) a[n * F + f] = both[n * 2 * F + f], b[n * F + f] = both[n * 2 * F + F + f];
}
template <class Num>
std::vector<Num> oracle(const std::vector<Num>& gate_up, Index N, Index F) {
  std::vector<Num> a, b;
  split(a, b, gate_up, N, F);
  return ref::swiglu(a, b);
}

template <class Act>
void check_swiglu(double storage_epsilon) {
  for (Index F : {0, 1, 3, 7, 8, 9, 16, 31})
    for (Index N : {0, 1, 3}) {
      const auto x = normals<Act>(N * 2 * F, 1, 2.0), g = normals<Act>(N * F, 2);
      const Buffer<Act> gate_up(x), dhidden(g);
      Buffer<Act> hidden(N * F), again(N * F), dgate_up(N * 2 * F), alone(N * 2 * F);
      swiglu_fwd(hidden.data(), gate_up.data(), N, F, Exec{});
      swiglu_bwd(dgate_up.data(), again.data(), dhidden.data(), gate_up.data(), N, F, Exec{});
      swiglu_bwd(alone.data(), static_cast<Act*>(nullptr), dhidden.data(), gate_up.data(), N, F, Exec{});
      const auto expected = oracle(x, N, F);
      const auto gradient =
          oracle_gradient(x, [&](const std::vector<Complex>& z) { return weighted_sum(oracle(z, N, F), g); });
      ASSERT_LT(rounding_ratio(hidden.values(), expected, kRoundings, storage_epsilon), 1) << N << " " << F;
      ASSERT_LT(rounding_ratio(dgate_up.values(), gradient, kRoundings, storage_epsilon), 1) << N << " " << F;
      ASSERT_EQ(again.values(), hidden.values());
      ASSERT_EQ(alone.values(), dgate_up.values());
      ASSERT_TRUE(hidden.intact() && again.intact() && dgate_up.intact() && alone.intact());
      if (N * F == 0) continue;

      // Mutants: silu without its gate; a slope that forgets that sigmoid moves too; one with a flipped sign.
      auto no_gate = expected, fixed_gate = gradient, flipped = gradient;
      for (Index n = 0; n < N; ++n)
        for (Index f = 0; f < F; ++f) {
          const double a = x[n * 2 * F + f], b = x[n * 2 * F + F + f], s = ref::sigmoid(a);
          no_gate[n * F + f] = a * b;
          fixed_gate[n * 2 * F + f] = g[n * F + f] * b * s;
          flipped[n * 2 * F + f] = g[n * F + f] * b * s * (1 - a * (1 - s));
        }
      ASSERT_GT(rounding_ratio(hidden.values(), no_gate, kRoundings, storage_epsilon), 1);
      ASSERT_GT(rounding_ratio(dgate_up.values(), fixed_gate, kRoundings, storage_epsilon), 1);
      ASSERT_GT(rounding_ratio(dgate_up.values(), flipped, kRoundings, storage_epsilon), 1);
    }
}

TEST(Swiglu, F32) { check_swiglu<float>(0); }
TEST(Swiglu, Bf16) { check_swiglu<bf16>(kBf16Epsilon); }

TEST(Swiglu, ThreadsAndAliasesGiveTheSameBits) {
  const Index N = 1501, F = 33;  // several claims
  const auto x = normals(N * 2 * F, 1), g = normals(N * F, 2);
  std::vector<double> first_hidden, first_gradient;
  for (int threads : {1, 2, 3}) {
    Buffer<float> gate_up(x), dhidden(g), hidden(N * F);
    swiglu_fwd(hidden.data(), gate_up.data(), N, F, Exec{.threads = threads});
    // In place: the gradient over its input, the hidden values over theirs.
    swiglu_bwd(gate_up.data(), dhidden.data(), dhidden.data(), gate_up.data(), N, F,
               Exec{.threads = threads});
    EXPECT_EQ(dhidden.values(), hidden.values());
    if (threads == 1) first_hidden = hidden.values(), first_gradient = gate_up.values();
    EXPECT_EQ(hidden.values(), first_hidden);
    EXPECT_EQ(gate_up.values(), first_gradient);
  }
}

TEST(Swiglu, FarFromZero) {
  const Buffer<float> gate_up(std::vector<double>{1000, -1000, 88, -88, 2, 2, 2, 2});
  Buffer<float> hidden(4), dgate_up(8);
  const Buffer<float> ones(std::vector<double>(4, 1.0));
  swiglu_fwd(hidden.data(), gate_up.data(), 1, 4, Exec{});
  swiglu_bwd(dgate_up.data(), static_cast<float*>(nullptr), ones.data(), gate_up.data(), 1, 4, Exec{});
  EXPECT_LT(rounding_ratio(hidden.values(), {2000, 0, 176, 0}, kRoundings), 1);
  EXPECT_LT(rounding_ratio(dgate_up.values(), {2, 0, 2, 0, 1000, 0, 88, 0}, kRoundings), 1);
}

}  // namespace
}  // namespace ddl::swiglu_test
