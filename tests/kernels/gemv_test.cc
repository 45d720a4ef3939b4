#include "kernels/gemv.h"

#include "kernels/kernel_test.h"

namespace ddl::gemv_test {
namespace {

// x_NI w_OI^T in double.
std::vector<double> product(const std::vector<double>& x, const std::vector<double>& w, Index N, Index O,
                            Index I) {
  std::vector<double> y(N * O);
  for (Index n = 0; n < N; ++n)
    for (Index o = 0; o < O; ++o)
      for (Index i = 0; i < I; ++i) y[n * O + o] += x[n * I + i] * w[o * I + i];
  return y;
}

template <class T, class Out>
void check_gemv(double storage_epsilon) {
  for (Index N : {0, 1, 2, 3, 4, 5, 8, 9})
    for (Index O : {0, 1, 2, 3, 4, 7, 9, 17, 26})
      for (Index I : {1, 3, 8, 17, 40}) {
        const auto x = normals<T>(N * I, 1), w = normals<T>(O * I, 2);
        const Buffer<T> xb(x), wb(w);
        Buffer<Out> y(N * O);
        gemv<T, Out>(y.data(), xb.data(), wb.data(), N, O, I, Exec{});
        const auto expected = product(x, w, N, O, I);
        ASSERT_LT(rounding_ratio(y.values(), expected, I + 1, storage_epsilon), 1)
            << N << " " << O << " " << I;
        ASSERT_TRUE(y.intact());
        if (N * O == 0) continue;
        auto mutant = expected;  // the last input is forgotten, as by a loop without its tail
        for (Index n = 0; n < N; ++n)
          for (Index o = 0; o < O; ++o) mutant[n * O + o] -= x[n * I + I - 1] * w[o * I + I - 1];
        ASSERT_GT(rounding_ratio(y.values(), mutant, I + 1, storage_epsilon), 1);
      }
}

TEST(Gemv, F32) { check_gemv<float, float>(0); }
TEST(Gemv, Bf16InF32Out) { check_gemv<bf16, float>(0); }
TEST(Gemv, Bf16InBf16Out) { check_gemv<bf16, bf16>(kBf16Epsilon); }

// Several chunks of rows, any other tokens in the call: a token's bits are the same.
TEST(Gemv, ATokensBitsDependOnNothingElse) {
  const Index O = 301, I = 517;
  const auto x = normals(8 * I, 1), w = normals(O * I, 2);
  const Buffer<float> xb(x), wb(w);
  Buffer<float> all(8 * O);
  gemv<float, float>(all.data(), xb.data(), wb.data(), 8, O, I, Exec{.threads = 3});
  for (int threads : {1, 2})
    for (Index N : {1, 2, 3, 5})
      for (Index first : {0, 3}) {
        Buffer<float> y(N * O);
        gemv<float, float>(y.data(), xb.data() + first * I, wb.data(), N, O, I, Exec{.threads = threads});
        for (Index i = 0; i < N * O; ++i) ASSERT_EQ(y[i], all[first * O + i]) << threads << " " << N;
      }
}

}  // namespace
}  // namespace ddl::gemv_test
