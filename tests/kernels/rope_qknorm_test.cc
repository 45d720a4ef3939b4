#include "kernels/rope_qknorm.h"

#include "kernels/kernel_test.h"
#include "ref/ops.h"

namespace ddl::rope_qknorm_test {
namespace {

// Part `part` (0 q, 1 k, 2 v) of qkv_N3C.
template <class Num>
std::vector<Num> part_of(const std::vector<Num>& qkv, Index part, Index N, Index C) {
  std::vector<Num> out(N * C);
  for (Index n = 0; n < N; ++n)
    for (Index c = 0; c < C; ++c) out[n * C + c] = qkv[n * 3 * C + part * C + c];
  return out;
}

struct Case {
  Index B, T, H, K;
};

template <class Act>
struct RopeRun {  // one forward and backward at shape `s`
  Buffer<Act> q, k, dqkv;
  Buffer<float> rstd, dq_w, dk_w;
  RopeRun(const Case& s, const std::vector<double>& qkv, const std::vector<double>& q_w,
          const std::vector<double>& k_w, const std::vector<double>& dq, const std::vector<double>& dk,
          const std::int32_t* position_N, int threads)
      : q(s.B * s.T * s.H * s.K),
        k(q.size()),
        dqkv(3 * q.size()),
        rstd(s.B * s.T * 2 * s.H),
        dq_w(s.K),
        dk_w(s.K) {
    const Index N = s.B * s.T, C = s.H * s.K, positions = 3 * s.T + 10;
    const Exec ex{.threads = threads};
    const Buffer<Act> qkv_b(qkv), dq_b(dq), dk_b(dk);
    const Buffer<float> q_w_b(q_w), k_w_b(k_w);
    Buffer<float> table(positions * s.K), scratch(rope_qknorm_scratch_floats(s.K));
    fill_rope_table(table.data(), positions, s.K);
    rope_qknorm_fwd(q.data(), k.data(), rstd.data(), qkv_b.data(), q_w_b.data(), k_w_b.data(), table.data(),
                    position_N, N, s.T, s.H, s.K, ex);
    for (Index i = 0; i < s.K; ++i) dq_w[i] = 1, dk_w[i] = -1;  // to see that the kernel adds
    for (Index i = 0; i < dqkv.size(); ++i) dqkv[i] = from_float<Act>(7.0f);
    rope_qknorm_bwd(dqkv.data(), dq_w.data(), dk_w.data(), scratch.data(), dq_b.data(), C, dk_b.data(), C,
                    qkv_b.data(), rstd.data(), q_w_b.data(), k_w_b.data(), table.data(), position_N, N, s.T,
                    s.H, s.K, ex);
    for (Index i = 0; i < s.K; ++i) dq_w[i] -= 1, dk_w[i] += 1;
    EXPECT_TRUE(q.intact() && k.intact() && rstd.intact() && dqkv.intact() && dq_w.intact() &&
                dk_w.intact() && scratch.intact());
    for (Index n = 0; n < N; ++n)
      for (Index c = 0; c < C; ++c) EXPECT_EQ(to_float(dqkv[n * 3 * C + 2 * C + c]), 7.0f) << "v is not ours";
  }
};

template <class Act>
void check_rope(double storage_epsilon) {
  for (const Case& s :
       {Case{1, 1, 1, 2}, Case{1, 3, 2, 8}, Case{2, 3, 2, 6}, Case{1, 2, 1, 34}, Case{3, 5, 1, 16}}) {
    const Index N = s.B * s.T, C = s.H * s.K;
    const auto qkv = normals<Act>(N * 3 * C, 1), q_w = normals(s.K, 2), k_w = normals(s.K, 3);
    const auto dq = normals<Act>(N * C, 4), dk = normals<Act>(N * C, 5);
    const RopeRun<Act> run(s, qkv, q_w, k_w, dq, dk, nullptr, 1);
    const auto apply = [&](auto x, auto w) { return ref::rope_qknorm(x, w, s.B, s.T, s.H, s.K); };
    const auto ratio = [&](const auto& actual, const auto& expected, Index sums, double epsilon) {
      return rounding_ratio(actual.values(), expected, sums + 10, epsilon);
    };

    // Forward.
    const auto q = part_of(qkv, 0, N, C), k = part_of(qkv, 1, N, C);
    ASSERT_LT(ratio(run.q, apply(q, q_w), s.K, storage_epsilon), 1);
    ASSERT_LT(ratio(run.k, apply(k, k_w), s.K, storage_epsilon), 1);
    for (Index n = 0; n < N; ++n)
      for (Index h = 0; h < 2 * s.H; ++h) {
        double squares = 0;
        for (Index i = 0; i < s.K; ++i) squares += std::pow(qkv[n * 3 * C + h * s.K + i], 2);
        ASSERT_NEAR(run.rstd[n * 2 * s.H + h] * std::sqrt(squares / s.K + ref::kNormEps), 1, 1e-6);
      }

    // Backward.
    std::vector<double> dx = oracle_gradient(qkv, [&](const std::vector<Complex>& z) {
      return weighted_sum(apply(part_of(z, 0, N, C), complexify(q_w)), dq) +
             weighted_sum(apply(part_of(z, 1, N, C), complexify(k_w)), dk);
    });
    for (Index n = 0; n < N; ++n)
      for (Index c = 0; c < C; ++c) dx[n * 3 * C + 2 * C + c] = 7;  // v: untouched
    const auto dq_w = oracle_gradient(
        q_w, [&](const std::vector<Complex>& w) { return weighted_sum(apply(complexify(q), w), dq); });
    const auto dk_w = oracle_gradient(
        k_w, [&](const std::vector<Complex>& w) { return weighted_sum(apply(complexify(k), w), dk); });
    ASSERT_LT(ratio(run.dqkv, dx, 2 * s.K, storage_epsilon), 1);
    ASSERT_LT(ratio(run.dq_w, dq_w, s.K + N * s.H, 0), 1);
    ASSERT_LT(ratio(run.dk_w, dk_w, s.K + N * s.H, 0), 1);

    // Mutants: the norm before its weight only (no rotation, where there is an angle); the gradient without
    // the norm's own slope; the weights of q and k exchanged.
    if (s.T > 1) {
      ASSERT_GT(ratio(run.q, ref::rmsnorm(q, q_w, N * s.H, s.K), s.K, storage_epsilon), 1);
    }
    ASSERT_GT(ratio(run.q, apply(q, k_w), s.K, storage_epsilon), 1);
    const auto frozen = oracle_gradient(qkv, [&](const std::vector<Complex>& z) {
      Complex sum = 0;
      for (Index part : {0, 1}) {
        const auto rotated = ref::rope(part_of(z, part, N, C), s.B, s.T, s.H, s.K);
        for (Index i = 0; i < N * C; ++i) {
          const Index n = i / C, h = i % C / s.K;
          sum += rotated[i] * double(run.rstd[n * 2 * s.H + part * s.H + h]) * (part ? k_w : q_w)[i % s.K] *
                 (part ? dk : dq)[i];
        }
      }
      return sum;
    });
    ASSERT_GT(rounding_ratio(part_of(run.dqkv.values(), 0, N, C), part_of(frozen, 0, N, C), 2 * s.K + 10,
                             storage_epsilon),
              1);
    ASSERT_GT(ratio(run.dq_w, dk_w, s.K + N * s.H, 0), 1);
  }
}

TEST(RopeQkNorm, F32) { check_rope<float>(0); }
TEST(RopeQkNorm, Bf16) { check_rope<bf16>(kBf16Epsilon); }

TEST(RopeQkNorm, AnyPositions) {
  const Case s{1, 4, 2, 8};
  const Index N = 4, C = 16;
  const auto qkv = normals(N * 3 * C, 1), w = normals(s.K, 2), g = normals(N * C, 4);
  const std::vector<std::int32_t> position = {9, 0, 13, 9};
  const RopeRun<float> run(s, qkv, w, w, g, g, position.data(), 1);
  for (Index n = 0; n < N; ++n) {
    const auto at = [&](auto z) {  // this token alone, at its position
      return ref::rmsnorm(ref::rope(z, 1, 1, s.H, s.K, ref::kRopeBase, position[n]),
                          decltype(z)(w.begin(), w.end()), s.H, s.K);
    };
    const std::vector<double> raw(qkv.begin() + n * 3 * C, qkv.begin() + n * 3 * C + C);
    const std::vector<double> gn(g.begin() + n * C, g.begin() + (n + 1) * C);
    const auto q = run.q.values(), dqkv = run.dqkv.values();
    EXPECT_LT(rounding_ratio({q.begin() + n * C, q.begin() + (n + 1) * C}, at(raw), s.K + 10), 1);
    const auto dx =
        oracle_gradient(raw, [&](const std::vector<Complex>& z) { return weighted_sum(at(z), gn); });
    EXPECT_LT(rounding_ratio({dqkv.begin() + n * 3 * C, dqkv.begin() + n * 3 * C + C}, dx, 2 * s.K + 10), 1);
  }
}

TEST(RopeQkNorm, ThreadsGiveTheSameBits) {
  const Case s{3, 67, 3, 10};
  const Index N = s.B * s.T, C = s.H * s.K;
  const auto qkv = normals(N * 3 * C, 1), w = normals(s.K, 2), g = normals(N * C, 4);
  const RopeRun<float> one(s, qkv, w, w, g, g, nullptr, 1);
  for (int threads : {2, 3}) {
    const RopeRun<float> many(s, qkv, w, w, g, g, nullptr, threads);
    EXPECT_EQ(many.q.values(), one.q.values());
    EXPECT_EQ(many.dqkv.values(), one.dqkv.values());
    EXPECT_EQ(many.dq_w.values(), one.dq_w.values());
    EXPECT_EQ(many.dk_w.values(), one.dk_w.values());
  }
}

TEST(RopeQkNorm, BackwardMayRunInPlace) {
  const Index N = 5, T = 5, H = 2, K = 10, C = H * K;
  const Buffer<float> qkv(normals(N * 3 * C, 1)), w(normals(K, 2));
  const auto g = normals(N * 3 * C, 4);
  Buffer<float> q(N * C), k(N * C), rstd(N * 2 * H), table(T * K), dw(2 * K),
      scratch(rope_qknorm_scratch_floats(K));
  fill_rope_table(table.data(), T, K);
  rope_qknorm_fwd(q.data(), k.data(), rstd.data(), qkv.data(), w.data(), w.data(), table.data(), nullptr, N,
                  T, H, K, Exec{});
  Buffer<float> in_place(g), apart(g);
  const Buffer<float> source(g);
  for (auto* out : {&in_place, &apart}) {
    const float* from = out == &in_place ? out->data() : source.data();
    rope_qknorm_bwd(out->data(), dw.data(), dw.data() + K, scratch.data(), from, 3 * C, from + C, 3 * C,
                    qkv.data(), rstd.data(), w.data(), w.data(), table.data(), nullptr, N, T, H, K, Exec{});
  }
  EXPECT_EQ(in_place.values(), apart.values());
}

}  // namespace
}  // namespace ddl::rope_qknorm_test
