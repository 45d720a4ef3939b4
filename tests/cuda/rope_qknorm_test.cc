#include "kernels/rope_qknorm.h"

#include "cuda/cuda_test.h"
#include "torch/cuda/rope_qknorm.cuh"

namespace ddl::cuda_test {
namespace {

template <class T>
void check_rope(Index N, Index T_, Index H, Index K) {
  SCOPED_TRACE(fmt::format("N {} H {} K {}", N, H, K));
  const Index C = H * K;
  const auto qkv = normals<T>(N * 3 * C, 1), dq = normals<T>(N * C, 2), dk = normals<T>(N * C, 3);
  const auto q_w = normals(K, 4), k_w = normals(K, 5);
  std::vector<float> rope(static_cast<std::size_t>(T_ * K));
  fill_rope_table(rope.data(), T_, K);
  struct Out {
    std::vector<T> q, k, dqkv;
    std::vector<float> rstd, dq_w, dk_w;
    Out(Index n, Index c, Index heads, Index size)
        : q(static_cast<std::size_t>(n * c)),
          k(q),
          dqkv(static_cast<std::size_t>(n * 3 * c)),
          rstd(static_cast<std::size_t>(n * 2 * heads)),
          dq_w(normals(size, 6)),
          dk_w(normals(size, 7)) {}
  };
  Out native(N, C, H, K), text(N, C, H, K), reversed(N, C, H, K);
  const Exec ex{.threads = 1};
  std::vector<float> scratch(static_cast<std::size_t>(rope_qknorm_scratch_floats(K)));
  rope_qknorm_fwd<T>(native.q.data(), native.k.data(), native.rstd.data(), qkv.data(), q_w.data(), k_w.data(),
                     rope.data(), nullptr, N, T_, H, K, ex);
  rope_qknorm_bwd<T>(native.dqkv.data(), native.dq_w.data(), native.dk_w.data(), scratch.data(), dq.data(), C,
                     dk.data(), C, qkv.data(), native.rstd.data(), q_w.data(), k_w.data(), rope.data(),
                     nullptr, N, T_, H, K, ex);
  const auto run = [&](Out& out, Order order) {
    cuda::RopeArgs<TextOf<T>> a;
    a.N = static_cast<int>(N), a.T_ = static_cast<int>(T_), a.H = static_cast<int>(H),
    a.K = static_cast<int>(K);
    a.qkv_N3C = as_text(qkv.data()), a.rope_TK = rope.data(), a.rstd_N2H = out.rstd.data();
    a.w_K[0] = q_w.data(), a.w_K[1] = k_w.data();
    a.y_NC[0] = as_text(out.q.data()), a.y_NC[1] = as_text(out.k.data());
    cuda::rope_forward(a, cuda_on_cpu::Launch{order});
    a.dy_NC[0] = as_text(dq.data()), a.dy_NC[1] = as_text(dk.data());
    a.dqkv_N3C = as_text(out.dqkv.data()), a.dw_K[0] = out.dq_w.data(), a.dw_K[1] = out.dk_w.data();
    std::vector<float> part(static_cast<std::size_t>(cuda::rope_scratch_floats(a.N, a.H, a.K)),
                            std::numeric_limits<float>::quiet_NaN());
    a.part = part.data();
    cuda::rope_backward(a, cuda_on_cpu::Launch{order});
  };
  run(text, Order::kFirstToLast);
  run(reversed, Order::kLastToFirst);
  const double stored = std::is_same_v<T, bf16> ? kBf16Step : kTolerance;
  EXPECT_LT(difference(text.q, native.q), stored);
  EXPECT_LT(difference(text.k, native.k), stored);
  EXPECT_LT(difference(text.dqkv, native.dqkv), stored);
  EXPECT_LT(difference(text.rstd, native.rstd), kTolerance);
  EXPECT_LT(difference(text.dq_w, native.dq_w), kTolerance);
  EXPECT_LT(difference(text.dk_w, native.dk_w), kTolerance);
  EXPECT_GT(difference(text.dq_w, native.dk_w), kTolerance) << "queries and keys have weights of their own";
  EXPECT_TRUE(same_bits(text.q, reversed.q) && same_bits(text.dqkv, reversed.dqkv) &&
              same_bits(text.dq_w, reversed.dq_w) && same_bits(text.dk_w, reversed.dk_w));
}

TEST(CudaRopeQknorm, F32) {
  check_rope<float>(6, 3, 2, 128);
  check_rope<float>(5, 5, 3, 32);
  check_rope<float>(4, 4, 1, 6);
  check_rope<float>(3, 3, 1, 256);
}
TEST(CudaRopeQknorm, Bf16) { check_rope<bf16>(6, 3, 2, 64); }
// More heads than warps: a warp takes several.
TEST(CudaRopeQknorm, ManyHeads) { check_rope<float>(cuda::kMaxRopeBlocks + 7, 8, 5, 2); }

}  // namespace
}  // namespace ddl::cuda_test
