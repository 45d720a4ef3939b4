#include "kernels/attention.h"

#include <string>
#include <type_traits>

#include "kernels/kernel_test.h"
#include "ref/ops.h"

namespace ddl::attention_test {
namespace {

struct Shape {
  Index B, T, H, K;
  Index N() const { return B * T; }
  Index C() const { return H * K; }
};

struct Gradients {
  std::vector<double> q, k, v;
};

// kSizes: every term by its absolute value, the size of what was summed. The others: a mutant's mistake.
enum class Variant { kRight, kSizes, kNoDelta, kNoScale, kSeesNextToken };

// The gradients with every weight written out, in double: complex step would take T^3 per element. Tests
// below compare them with the oracle by complex step at small shapes.
Gradients gradients(const std::vector<double>& q, const std::vector<double>& k, const std::vector<double>& v,
                    const std::vector<double>& g, const Shape& s, Variant variant = Variant::kRight) {
  Gradients d{std::vector<double>(q.size()), std::vector<double>(q.size()), std::vector<double>(q.size())};
  const double scale = 1 / std::sqrt(double(s.K));
  const auto dot = [&](const std::vector<double>& x, Index i, const std::vector<double>& y, Index j) {
    double sum = 0;
    for (Index c = 0; c < s.K; ++c) sum += x[i + c] * y[j + c];
    return sum;
  };
  const auto add = [&](std::vector<double>& to, Index i, double factor, const std::vector<double>& from,
                       Index j) {
    for (Index c = 0; c < s.K; ++c)
      to[i + c] += variant == Variant::kSizes ? std::abs(factor * from[j + c]) : factor * from[j + c];
  };
  for (Index b = 0; b < s.B; ++b)
    for (Index h = 0; h < s.H; ++h)
      for (Index t = 0; t < s.T; ++t) {
        const auto row = [&](Index i) { return ((b * s.T + i) * s.H + h) * s.K; };
        const Index seen = std::min(s.T, t + (variant == Variant::kSeesNextToken ? 2 : 1));
        std::vector<double> p(seen), dp(seen);
        for (Index j = 0; j < seen; ++j)
          p[j] = scale * dot(q, row(t), k, row(j)), dp[j] = dot(g, row(t), v, row(j));
        const double lse = ref::logsumexp(p, 1, seen)[0];
        double delta = 0;
        for (Index j = 0; j < seen; ++j) delta += (p[j] = std::exp(p[j] - lse)) * dp[j];
        if (variant == Variant::kNoDelta) delta = 0;
        for (Index j = 0; j < seen; ++j) {
          double above = dp[j] - delta;
          if (variant == Variant::kSizes) above = std::abs(dp[j]) + std::abs(delta);
          const double ds = p[j] * above * (variant == Variant::kNoScale ? 1 : scale);
          add(d.v, row(j), p[j], g, row(t));
          add(d.q, row(t), ds, k, row(j));
          add(d.k, row(j), ds, q, row(t));
        }
      }
  return d;
}

TEST(Attention, TheTestsOwnGradientsAreTheOracles) {
  const Shape s{2, 5, 2, 4};
  const Index n = s.N() * s.C();
  const auto q = normals(n, 1), k = normals(n, 2), v = normals(n, 3), g = normals(n, 4);
  const Gradients d = gradients(q, k, v, g, s);
  const auto cq = complexify(q), ck = complexify(k), cv = complexify(v);
  const auto loss = [&](const auto& a, const auto& b, const auto& c) {
    return weighted_sum(ref::attention(a, b, c, s.B, s.T, s.H, s.K), g);
  };
  const auto dq = oracle_gradient(q, [&](const std::vector<Complex>& z) { return loss(z, ck, cv); });
  const auto dk = oracle_gradient(k, [&](const std::vector<Complex>& z) { return loss(cq, z, cv); });
  const auto dv = oracle_gradient(v, [&](const std::vector<Complex>& z) { return loss(cq, ck, z); });
  for (Index i = 0; i < n; ++i) {
    ASSERT_NEAR(d.q[i], dq[i], 1e-13);
    ASSERT_NEAR(d.k[i], dk[i], 1e-13);
    ASSERT_NEAR(d.v[i], dv[i], 1e-13);
  }
}

// Dense [N][C] -> rows `ld` apart from column `column` on; the gaps hold `gap`.
std::vector<double> spread(const std::vector<double>& x, const Shape& s, Index ld, Index column, double gap) {
  std::vector<double> out(s.N() * ld, gap);
  for (Index n = 0; n < s.N(); ++n)
    for (Index c = 0; c < s.C(); ++c) out[n * ld + column + c] = x[n * s.C() + c];
  return out;
}

template <class Act>
// Forward and backward. q and k are dense, v is inside [q | k | v]; dq has gaps between rows, dk is dense,
// dv is inside.
struct AttentionRun {
  static constexpr float kGap = 3;
  Shape s;
  Buffer<Act> o, dq, dk, dqkv;
  Buffer<float> lse;
  AttentionRun(const Shape& shape, const std::vector<double>& q, const std::vector<double>& k,
               const std::vector<double>& v, const std::vector<double>& g, int threads = 1)
      : s(shape),
        o(s.N() * s.C()),
        dq(s.N() * (s.C() + 5)),
        dk(s.N() * s.C()),
        dqkv(s.N() * 3 * s.C()),
        lse(s.N() * s.H) {
    std::fill_n(dq.data(), dq.size(), from_float<Act>(kGap));
    std::fill_n(dqkv.data(), dqkv.size(), from_float<Act>(kGap));
    const Index C = s.C();
    const Exec ex{.threads = threads};
    const Buffer<Act> qb(q), kb(k), qkv(spread(v, s, 3 * C, 2 * C, 1e30)), gb(g);
    Buffer<std::byte> scratch(static_cast<Index>(attention_scratch_bytes(s.T, s.K, threads)), 0);
    const HeadRows<const Act> qr{qb.data(), C}, kr{kb.data(), C}, vr{qkv.data() + 2 * C, 3 * C};
    attention_fwd<Act>({o.data(), C}, lse.data(), scratch.data(), qr, kr, vr, s.B, s.T, s.H, s.K, ex);
    attention_bwd<Act>({dq.data(), C + 5}, {dk.data(), C}, {dqkv.data() + 2 * C, 3 * C}, scratch.data(),
                       {gb.data(), C}, {o.data(), C}, lse.data(), qr, kr, vr, s.B, s.T, s.H, s.K, ex);
    EXPECT_TRUE(o.intact() && lse.intact() && dq.intact() && dk.intact() && dqkv.intact() &&
                scratch.intact());
  }
  double output_ratio(const std::vector<double>& expected, Index roundings, double storage_epsilon) const {
    return rounding_ratio(o.values(), expected, roundings, storage_epsilon);
  }
  double dq_ratio(const Gradients& d, Index roundings, double storage_epsilon) const {
    check_gaps(dq, s.C() + 5, 0);
    return rounding_ratio(dense(dq, s.C() + 5, 0), d.q, roundings, storage_epsilon);
  }
  double dk_ratio(const Gradients& d, Index roundings, double storage_epsilon) const {
    return rounding_ratio(dk.values(), d.k, roundings, storage_epsilon);
  }
  double dv_ratio(const Gradients& d, Index roundings, double storage_epsilon) const {
    check_gaps(dqkv, 3 * s.C(), 2 * s.C());
    return rounding_ratio(dense(dqkv, 3 * s.C(), 2 * s.C()), d.v, roundings, storage_epsilon);
  }

  // The same for dq and dk together, where the terms may cancel: errors against the size of the terms.
  double cancelling_ratio(const Gradients& d, const Gradients& sizes, Index roundings,
                          double storage_epsilon) const {
    auto q = dense(dq, s.C() + 5, 0), k = dk.values();
    for (std::size_t i = 0; i < q.size(); ++i) q[i] += sizes.q[i] - d.q[i], k[i] += sizes.k[i] - d.k[i];
    return std::max(rounding_ratio(q, sizes.q, roundings, storage_epsilon),
                    rounding_ratio(k, sizes.k, roundings, storage_epsilon));
  }

 private:
  std::vector<double> dense(const Buffer<Act>& x, Index ld, Index column) const {
    std::vector<double> out;
    for (Index n = 0; n < s.N(); ++n)
      for (Index c = 0; c < s.C(); ++c) out.push_back(to_float(x[n * ld + column + c]));
    return out;
  }
  void check_gaps(const Buffer<Act>& x, Index ld, Index column) const {
    for (Index i = 0; i < x.size(); ++i)
      if (i % ld < column || i % ld >= column + s.C()) {
        ASSERT_EQ(to_float(x[i]), kGap) << "written beside the rows, at " << i;
      }
  }
};

// With bf16 the weights p (and ds, and o inside delta) are rounded to 8 bits on the way. One such rounding
// weighs as much in the walk as (bf16 epsilon / f32 epsilon)^2 roundings to f32.
constexpr Index kBf16Rounding = Index{1} << 32;

template <class Act>
void check_attention(const std::vector<Shape>& shapes, double storage_epsilon) {
  const Index narrow_roundings = std::is_same_v<Act, bf16> ? kBf16Rounding : 0;
  for (const Shape& s : shapes) {
    const Index n = s.N() * s.C();
    const auto q = normals<Act>(n, 1), k = normals<Act>(n, 2), v = normals<Act>(n, 3), g = normals<Act>(n, 4);
    const AttentionRun<Act> run(s, q, k, v, g);
    const std::string where = fmt::format("B {} T {} H {} K {}", s.B, s.T, s.H, s.K);
    // A score sums K products; an output sums up to T; then the exponential and the products around it.
    const Index fwd_roundings = s.K + s.T + 20 + narrow_roundings;
    const Index bwd_roundings = 2 * s.K + s.T + 30 + 3 * narrow_roundings;

    const auto o = ref::attention(q, k, v, s.B, s.T, s.H, s.K);
    const Gradients d = gradients(q, k, v, g, s);
    ASSERT_LT(run.output_ratio(o, fwd_roundings, storage_epsilon), 1) << where;
    for (Index token = 0; token < s.N(); ++token)
      for (Index h = 0; h < s.H; ++h) {
        std::vector<double> score;
        for (Index j = token / s.T * s.T; j <= token; ++j) {
          score.push_back(0);
          for (Index c = 0; c < s.K; ++c)
            score.back() +=
                q[(token * s.H + h) * s.K + c] * k[(j * s.H + h) * s.K + c] / std::sqrt(double(s.K));
        }
        const double lse = ref::logsumexp(score, 1, std::ssize(score))[0];
        ASSERT_LT(rounding_ratio({run.lse[token * s.H + h] / (1 + std::abs(lse)) + 1},
                                 {lse / (1 + std::abs(lse)) + 1}, s.K + s.T + 20),
                  1)
            << where;
      }
    ASSERT_LT(run.dv_ratio(d, bwd_roundings, storage_epsilon), 1) << where;
    if (s.T == 1) {  // one key: nothing to choose, dp and delta cancel
      const Gradients sizes = gradients(q, k, v, g, s, Variant::kSizes);
      ASSERT_LT(run.cancelling_ratio(d, sizes, bwd_roundings, storage_epsilon), 1) << where;
      continue;
    }
    ASSERT_LT(run.dq_ratio(d, bwd_roundings, storage_epsilon), 1) << where;
    ASSERT_LT(run.dk_ratio(d, bwd_roundings, storage_epsilon), 1) << where;

    const Gradients no_delta = gradients(q, k, v, g, s, Variant::kNoDelta);
    const Gradients no_scale = gradients(q, k, v, g, s, Variant::kNoScale);
    const Gradients peeks = gradients(q, k, v, g, s, Variant::kSeesNextToken);
    ASSERT_GT(run.dq_ratio(no_delta, bwd_roundings, storage_epsilon), 1) << where;
    ASSERT_GT(run.dk_ratio(no_delta, bwd_roundings, storage_epsilon), 1) << where;
    ASSERT_GT(run.dq_ratio(no_scale, bwd_roundings, storage_epsilon), 1) << where;
    ASSERT_GT(run.dv_ratio(peeks, bwd_roundings, storage_epsilon), 1) << where;
    // Forward mutants: queries and keys exchanged; values of the wrong token.
    ASSERT_GT(run.output_ratio(ref::attention(k, q, v, s.B, s.T, s.H, s.K), fwd_roundings, storage_epsilon),
              1);
    auto shifted = v;
    std::rotate(shifted.begin(), shifted.begin() + s.C(), shifted.end());
    ASSERT_GT(
        run.output_ratio(ref::attention(q, k, shifted, s.B, s.T, s.H, s.K), fwd_roundings, storage_epsilon),
        1);
  }
}

// Around the block sizes (64 queries; 128 and 256 keys), one to three blocks, head sizes 8 to 128.
TEST(Attention, F32) {
  check_attention<float>({{1, 1, 1, 8},
                          {1, 2, 2, 16},
                          {2, 7, 2, 8},
                          {1, 63, 1, 5},
                          {1, 64, 2, 16},
                          {1, 65, 1, 8},
                          {2, 129, 1, 64},
                          {1, 70, 1, 128},
                          {1, 257, 1, 16},
                          {1, 321, 2, 8}},
                         0);
}
TEST(Attention, Bf16) {
  check_attention<bf16>({{1, 1, 1, 8}, {2, 7, 2, 8}, {1, 65, 1, 64}, {1, 129, 2, 16}, {1, 300, 1, 8}},
                        kBf16Epsilon);
}

// Scores of several hundred, rising from key to key so that every block brings a new maximum. A score of size
// m is only known to m eps / 2, which its exponential turns into a relative error: m^2 roundings in the walk.
TEST(Attention, LargeAndRisingScores) {
  const Shape s{1, 300, 1, 8};
  const Index n = s.N() * s.C();
  auto q = normals(n, 1), k = normals(n, 2), v = normals(n, 3), g = normals(n, 4);
  for (Index t = 0; t < s.T; ++t)
    for (Index c = 0; c < s.K; ++c) {
      q[t * s.K + c] = to_float(float(16 + 0.1 * q[t * s.K + c]));
      k[t * s.K + c] = to_float(float(0.05 * double(t) + 0.1 * k[t * s.K + c]));
    }
  const Index largest = 700;  // 8 * 16 * 15 / sqrt(8)
  const AttentionRun<float> run(s, q, k, v, g);
  const Gradients d = gradients(q, k, v, g, s);
  const Index roundings = (s.K + 1) * largest * largest;
  EXPECT_LT(run.output_ratio(ref::attention(q, k, v, s.B, s.T, s.H, s.K), roundings, 0), 1);
  EXPECT_LT(run.cancelling_ratio(d, gradients(q, k, v, g, s, Variant::kSizes), roundings, 0), 1);
  EXPECT_LT(run.dv_ratio(d, roundings, 0), 1);
}

TEST(Attention, TheFutureDoesNotShow) {
  const Shape s{1, 150, 2, 8};
  const Index n = s.N() * s.C(), cut = 100;
  const auto q = normals(n, 1), v = normals(n, 3), g = normals(n, 4);
  auto k = normals(n, 2), other_k = k, other_v = v;
  for (Index i = cut * s.C(); i < n; ++i) other_k[i] = 1000, other_v[i] = -1000;
  const AttentionRun<float> one(s, q, k, v, g), other(s, q, other_k, other_v, g);
  const auto a = one.o.values(), b = other.o.values();
  EXPECT_TRUE(std::equal(a.begin(), a.begin() + cut * s.C(), b.begin()));
  EXPECT_FALSE(std::equal(a.begin(), a.begin() + (cut + 1) * s.C(), b.begin()));
}

TEST(Attention, ThreadsAndCompanyGiveTheSameBits) {
  const Shape s{2, 150, 3, 16};
  const Index n = s.N() * s.C();
  const auto q = normals(n, 1), k = normals(n, 2), v = normals(n, 3), g = normals(n, 4);
  const AttentionRun<float> one(s, q, k, v, g, 1);
  for (int threads : {2, 3, 8}) {
    const AttentionRun<float> many(s, q, k, v, g, threads);
    EXPECT_EQ(many.o.values(), one.o.values());
    EXPECT_EQ(many.lse.values(), one.lse.values());
    EXPECT_EQ(many.dq.values(), one.dq.values());
    EXPECT_EQ(many.dk.values(), one.dk.values());
    EXPECT_EQ(many.dqkv.values(), one.dqkv.values());
  }
  // The second sequence without the first.
  const auto half = [&](const std::vector<double>& x) {
    return std::vector<double>(x.begin() + n / 2, x.end());
  };
  const AttentionRun<float> alone({1, s.T, s.H, s.K}, half(q), half(k), half(v), half(g), 2);
  EXPECT_EQ(alone.o.values(), half(one.o.values()));
  EXPECT_EQ(alone.dk.values(), half(one.dk.values()));
}

}  // namespace
}  // namespace ddl::attention_test
