#include "kernels/gemm.h"

#include "kernels/kernel_test.h"

namespace ddl::gemm_test {
namespace {

// op(a)_MK op(b)_KN in double.
std::vector<double> product(const std::vector<double>& a, Index lda, Op opa, const std::vector<double>& b,
                            Index ldb, Op opb, Index M, Index N, Index K) {
  std::vector<double> c(M * N);
  for (Index m = 0; m < M; ++m)
    for (Index n = 0; n < N; ++n)
      for (Index k = 0; k < K; ++k)
        c[m * N + n] += (opa == Op::kNone ? a[m * lda + k] : a[k * lda + m]) *
                        (opb == Op::kNone ? b[k * ldb + n] : b[n * ldb + k]);
  return c;
}

template <class T, class Out>
void check_gemm(double storage_epsilon) {
  const Index sizes[][3] = {{1, 1, 1},    {1, 7, 5},  {3, 1, 9},     {17, 5, 3}, {8, 33, 16},
                            {65, 19, 40}, {5, 64, 1}, {257, 130, 65}};  // the last is shared by threads
  for (const auto& [M, N, K] : sizes)
    for (Op opa : {Op::kNone, Op::kTranspose})
      for (Op opb : {Op::kNone, Op::kTranspose})
        for (Index pad : {0, 3})
          for (int threads : {1, 2, 3}) {
            const Index lda = (opa == Op::kNone ? K : M) + pad, ldb = (opb == Op::kNone ? N : K) + pad;
            const auto a = normals<T>((opa == Op::kNone ? M : K) * lda, 1);
            const auto b = normals<T>((opb == Op::kNone ? K : N) * ldb, 2);
            const Buffer<T> ab(a), bb(b);
            Buffer<Out> c(M * N);
            gemm<T, Out>(c.data(), N, Write::kOverwrite, {ab.data(), lda, opa}, {bb.data(), ldb, opb}, M, N,
                         K, Exec{.threads = threads});
            const auto expected = product(a, lda, opa, b, ldb, opb, M, N, K);
            ASSERT_LT(rounding_ratio(c.values(), expected, K + 1, storage_epsilon), 1)
                << M << " " << N << " " << K;
            ASSERT_TRUE(c.intact());
            auto mutant = expected;  // one product left out of one sum
            mutant[0] -= a[0] * b[0];
            ASSERT_GT(rounding_ratio(c.values(), mutant, K + 1, storage_epsilon), 1);
          }
}

TEST(Gemm, F32) { check_gemm<float, float>(0); }
TEST(Gemm, Bf16InF32Out) { check_gemm<bf16, float>(0); }
TEST(Gemm, Bf16InBf16Out) { check_gemm<bf16, bf16>(kBf16Epsilon); }

template <class T>
void check_accumulation() {
  const Index M = 5, N = 6, K = 7, ldc = 9;
  const auto a = normals<T>(M * K, 1), b = normals<T>(K * N, 2), before = normals(M * ldc, 3);
  const Buffer<T> ab(a), bb(b);
  Buffer<float> c(before);
  gemm<T, float>(c.data(), ldc, Write::kAccumulate, {ab.data(), K}, {bb.data(), N}, M, N, K, Exec{});
  const auto added = product(a, K, Op::kNone, b, N, Op::kNone, M, N, K);
  auto sum = before, overwritten = before;
  for (Index m = 0; m < M; ++m)
    for (Index n = 0; n < N; ++n)
      sum[m * ldc + n] += added[m * N + n], overwritten[m * ldc + n] = added[m * N + n];
  EXPECT_LT(rounding_ratio(c.values(), sum, K + 1), 1);
  EXPECT_GT(rounding_ratio(c.values(), overwritten, K + 1), 1);
  EXPECT_TRUE(c.intact());
}
TEST(Gemm, AccumulatesAndRespectsTheLeadingDimension) { check_accumulation<float>(); }
TEST(Gemm, AccumulatesAndRespectsTheLeadingDimensionBf16) { check_accumulation<bf16>(); }

TEST(Gemm, LinearLayerShapes) {
  const Index N = 6, O = 5, I = 4;
  const auto x = normals(N * I, 1), w = normals(O * I, 2), dy = normals(N * O, 3);
  const Buffer<float> xb(x), wb(w), dyb(dy);
  Buffer<float> y(N * O), dx(N * I), dw(O * I);
  linear_fwd(y.data(), xb.data(), wb.data(), N, O, I, Exec{});
  linear_bwd_input(dx.data(), Write::kOverwrite, dyb.data(), wb.data(), N, O, I, Exec{});
  linear_bwd_weight(dw.data(), dyb.data(), xb.data(), N, O, I, Exec{});
  EXPECT_LT(rounding_ratio(y.values(), product(x, I, Op::kNone, w, I, Op::kTranspose, N, O, I), I), 1);
  EXPECT_LT(rounding_ratio(dx.values(), product(dy, O, Op::kNone, w, I, Op::kNone, N, I, O), O), 1);
  EXPECT_LT(rounding_ratio(dw.values(), product(dy, O, Op::kTranspose, x, I, Op::kNone, O, I, N), N), 1);
}

// Rows that are equal come out equal, wherever they stand, however many there are and on however many
// threads: what the library alone does not promise. Shapes on both sides of its choices among algorithms.
template <class T>
void check_blocks(double storage_epsilon) {
  for (Index O : {5, 384, 401})
    for (Index I : {8, 130}) {
      const auto row = normals<T>(I, 1), w = normals<T>(O * I, 2);
      const auto expected = product(row, I, Op::kNone, w, I, Op::kTranspose, 1, O, I);
      const Buffer<T> wb(w);
      std::vector<double> first;
      for (Index N : {Index{1}, Index{7}, Index{30}, Index{60}, Index{100}, Index{140}, kBlockRows - 1,
                      kBlockRows, 3 * kBlockRows + 50}) {
        const Index rows = padded_rows(N);
        ASSERT_EQ(rows % kTileRows, 0);
        std::vector<double> x = normals<T>(rows * I, 3);  // every third row is the one; its neighbours differ
        for (Index n = 0; n < rows; n += 3) std::copy(row.begin(), row.end(), x.begin() + n * I);
        const Buffer<T> xb(x);
        for (int threads : {1, 2, 3}) {
          Buffer<T> y(rows * O);
          linear_blocks<T, T>(y.data(), xb.data(), wb.data(), N, O, I, Exec{.threads = threads});
          ASSERT_TRUE(y.intact());
          const auto values = y.values();
          if (first.empty()) first.assign(values.begin(), values.begin() + O);
          for (Index n = 0; n < N; n += 3)
            ASSERT_TRUE(std::equal(first.begin(), first.end(), values.begin() + n * O))
                << "row " << n << " of " << N << ", " << O << " outputs, " << threads << " threads";
        }
      }
      EXPECT_LT(rounding_ratio(first, expected, I + 1, storage_epsilon), 1);
    }
}
TEST(Gemm, BlocksGiveARowsBitsWhateverIsBesideIt) { check_blocks<float>(0); }
TEST(Gemm, BlocksGiveARowsBitsWhateverIsBesideItBf16) { check_blocks<bf16>(kBf16Epsilon); }

TEST(Gemm, EmptySumsAreZero) {
  Buffer<float> c(4);
  for (Index i = 0; i < 4; ++i) c[i] = 7;
  gemm<float, float>(c.data(), 2, Write::kOverwrite, {nullptr, 1}, {nullptr, 2}, 2, 2, 0, Exec{});
  EXPECT_EQ(c.values(), std::vector<double>(4, 0.0));
}

}  // namespace
}  // namespace ddl::gemm_test
