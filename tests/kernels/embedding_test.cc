#include "kernels/embedding.h"

#include "kernels/kernel_test.h"
#include "ref/ops.h"

namespace ddl::embedding_test {
namespace {

std::vector<std::int32_t> tokens(Index N, Index V) {
  std::vector<std::int32_t> out(N);
  const Random random(1, "tokens");
  for (Index n = 0; n < N; ++n)
    out[n] =
        static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(n), static_cast<std::uint64_t>(V)));
  return out;
}

// Copies are exact, and sums are made in the order of the tokens: no tolerance anywhere.
template <class X, class W>
void check_embedding() {
  for (Index C : {0, 1, 3, 7, 8, 9, 63, 64, 65, 130})
    for (Index N : {0, 1, 75}) {
      const Index V = 11;
      const auto w = normals<W>(V * C, 1), g = normals<X>(N * C, 2);
      const auto token_N = tokens(N, V);
      const Buffer<W> wte(w);
      const Buffer<X> dx(g);
      std::vector<double> first;
      for (int threads : {1, 2, 3}) {
        const Exec ex{.threads = threads};
        Buffer<X> x(N * C);
        embedding_fwd(x.data(), wte.data(), token_N.data(), N, V, C, ex);
        ASSERT_EQ(x.values(), ref::embedding(w, token_N, N, V, C));
        Buffer<float> dwte(normals(V * C, 3));
        std::vector<float> expected(dwte.data(), dwte.data() + V * C), mutant = expected;
        embedding_bwd(dwte.data(), dx.data(), token_N.data(), N, V, C, ex);
        for (Index n = 0; n < N; ++n)
          for (Index c = 0; c < C; ++c) {
            expected[token_N[n] * C + c] += to_float(dx[n * C + c]);
            mutant[token_N[n] * C + c] = to_float(dx[n * C + c]);  // overwrites where it should add
          }
        ASSERT_TRUE(std::equal(expected.begin(), expected.end(), dwte.data())) << N << " " << C;
        if (N * C > 0) {
          ASSERT_FALSE(std::equal(mutant.begin(), mutant.end(), dwte.data()));
        }
        ASSERT_TRUE(x.intact() && dwte.intact());
      }
    }
}

TEST(Embedding, F32) { check_embedding<float, float>(); }
TEST(Embedding, Bf16) { check_embedding<bf16, bf16>(); }
TEST(Embedding, Bf16Widened) { check_embedding<float, bf16>(); }

TEST(Embedding, BackwardIsTheGradient) {
  const Index N = 7, V = 4, C = 5;
  const auto w = normals(V * C, 1), g = normals(N * C, 2);
  const auto token_N = tokens(N, V);
  const Buffer<float> dx(g);
  Buffer<float> dwte(V * C);
  embedding_bwd(dwte.data(), dx.data(), token_N.data(), N, V, C, Exec{});
  const auto expected = oracle_gradient(
      w, [&](const std::vector<Complex>& z) { return weighted_sum(ref::embedding(z, token_N, N, V, C), g); });
  EXPECT_LT(rounding_ratio(dwte.values(), expected, N), 1);
}

}  // namespace
}  // namespace ddl::embedding_test
