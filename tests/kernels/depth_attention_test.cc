// Attention over depth: forward, every gradient by complex step, mutants of the formulas.
#include "kernels/depth_attention.h"

#include "kernels/named_gradients.h"
#include "ref/depth_ops.h"

namespace ddl::depth_attention_test {
namespace {

using Tensors = NamedTensors<double>;

enum class Fault { kNone, kFixedWeights, kFixedRho, kFixedNorm };

struct Shape {
  Index I, N, C;  // sources, tokens, width
};
const Shape kShapes[] = {{1, 3, 8}, {2, 2, 3}, {3, 5, 8}, {5, 3, 19}, {6, 40, 9}, {10, 2, 33}};

// The newest source as it stands, in the kernel's type; `h` is a term of it.
template <class V>
Tensors inputs(Shape s) {
  const auto sources = normals<V>(s.I * s.N * s.C, 1);
  return {{"source", s.I > 1 ? sources : normals(s.N * s.C, 1)},
          {"q", normals(s.C, 2)},
          {"norm", normals(s.C, 3)}};
}

template <class Num>
std::vector<Num> still(std::vector<Num> x) {
  for (Num& v : x) v = Num(std::real(v));
  return x;
}

// The mixture with each source's rho from `keys` instead of from the source itself.
template <class Num>
std::vector<Num> mix(const std::vector<Num>& V, const std::vector<Num>& keys,
                     const std::vector<Num>& weights_of, const std::vector<Num>& q, Shape s) {
  std::vector<Num> x(static_cast<std::size_t>(s.N * s.C), Num(0));
  for (Index n = 0; n < s.N; ++n) {
    std::vector<Num> score;
    Num total(0);
    for (Index i = 0; i < s.I; ++i) {
      const Index row = (i * s.N + n) * s.C;
      Num squares(0), dot(0);
      for (Index c = 0; c < s.C; ++c)
        squares += keys[row + c] * keys[row + c], dot += q[c] * weights_of[row + c];
      score.push_back(
          std::exp(dot / std::sqrt(squares / Num(static_cast<double>(s.C)) + Num(ref::kNormEps))));
      total += score.back();
    }
    for (Index i = 0; i < s.I; ++i)
      for (Index c = 0; c < s.C; ++c) x[n * s.C + c] += score[i] / total * V[(i * s.N + n) * s.C + c];
  }
  return x;
}

Complex loss(const NamedTensors<Complex>& t, Shape s, const std::vector<double>& dcontext, Fault fault) {
  const auto &V = t.at("source"), &q = t.at("q");
  auto x = fault == Fault::kFixedWeights ? mix(V, still(V), still(V), still(q), s)
           : fault == Fault::kFixedRho   ? mix(V, still(V), V, q, s)
                                         : ref::depth_mix(V, q, s.I, s.N, s.C);
  auto context = ref::rmsnorm(x, t.at("norm"), s.N, s.C);
  if (fault == Fault::kFixedNorm) {  // the scale as a constant
    const auto fixed = ref::rmsnorm(still(x), still(t.at("norm")), s.N, s.C);
    for (std::size_t i = 0; i < x.size(); ++i) context[i] = fixed[i] / std::real(x[i]) * x[i];
  }
  return weighted_sum(context, dcontext);
}

template <class T, class V>
class PassBothWays {
 public:
  PassBothWays(const Tensors& t, Shape s, bool top, int threads, bool sums = false)
      : s_(s),
        q_(t.at("q")),
        norm_(t.at("norm")),
        first_(slice(t.at("source"), 0)),
        context_(s.N * s.C),
        rstd_(s.N),
        alpha_(s.N * s.I) {
    const auto [I, N, C] = s;
    const Exec ex{.threads = threads};
    const auto h_values = normals<T>(N * C, 4);
    const Buffer<T> h(h_values);
    for (Index i = 0; i < I; ++i) rho_.emplace_back(N), rho_N_.push_back(rho_.back().data());
    for (Index i = 1; i < I; ++i) others_.emplace_back(slice(t.at("source"), i));
    if (sums) {  // a sum that h enters in the pass itself
      auto before = others_.back().values();
      for (std::size_t i = 0; i < before.size(); ++i) before[i] -= h_values[i];
      others_.back() = Buffer<V>(before);
    }
    for (Buffer<V>& b : others_) others_NC_.push_back(b.data());
    // rho of all but the newest: from reads that saw one source less.
    for (Index i = 0; i < I; ++i) {
      const DepthWrite<T, V> write{
          .h_NC = h.data(), .newest_NC = i > 0 ? others_[i - 1].data() : nullptr, .mode = Write::kAccumulate};
      depth_attention_fwd<T, V>({.newest_rho_N = rho_[i].data(),
                                 .alpha_NI = alpha_.data(),
                                 .context_NC = context_.data(),
                                 .rstd_N = rstd_.data()},
                                sums && i == I - 1 ? &write : nullptr, sources(i + 1), N, C, ex);
    }
    forward = {{"context", context_.values()}, {"alpha", alpha_.values()}};
    if (sums) forward["newest"] = others_.back().values();

    const Buffer<float> dcontext(normals(N * C, 5));
    std::vector<Buffer<float>> dsources;
    std::vector<float*> dothers;
    for (Index i = 0; i < I; ++i)
      dsources.emplace_back(top ? std::vector<double>(static_cast<std::size_t>(N * C), std::nan(""))
                                : normals(N * C, static_cast<std::uint64_t>(20 + i)));
    for (Index i = 1; i < I; ++i) dothers.push_back(dsources[i].data());
    if (top && I > 1 && !sums) dothers.back() = nullptr;
    Buffer<T> dh(N * C);
    Buffer<float> dq(C), dnorm(C), scratch(depth_attention_scratch(C));
    depth_attention_bwd<T, V>({.alpha_NI = alpha_.data(),
                               .rstd_N = rstd_.data(),
                               .dcontext_NC = dcontext.data(),
                               .dfirst_NC = dsources[0].data(),
                               .dothers_NC = dothers.data(),
                               .mode = top ? Write::kOverwrite : Write::kAccumulate,
                               .dh_NC = I > 1 ? dh.data() : nullptr,
                               .newest_NC = sums ? others_.back().data() : nullptr,
                               .h_NC = h.data(),
                               .dq_C = dq.data(),
                               .dnorm_C = dnorm.data()},
                              sources(I), scratch.data(), N, C, ex);
    gradients = {{"q", dq.values()}, {"norm", dnorm.values()}, {"source", {}}};
    for (Index i = 0; i < I; ++i) {
      const auto d = i > 0 && i == I - 1 ? dh.values() : dsources[i].values();
      gradients["source"].insert(gradients["source"].end(), d.begin(), d.end());
      intact = intact && dsources[i].intact() && rho_[i].intact();
    }
    if (sums) kept = dsources.back().values(), walked_back = others_.back().values();
    intact = intact && dh.intact() && dq.intact() && dnorm.intact() && scratch.intact() &&
             context_.intact() && rstd_.intact() && alpha_.intact();
    for (const Buffer<V>& b : others_) intact = intact && b.intact();
  }

  // What the gradients must be: the oracle's, and what had arrived before.
  static Tensors truth(const Tensors& t, Shape s, bool top, Fault fault) {
    const auto dcontext = normals(s.N * s.C, 5);
    Tensors g =
        named_gradients(t, [&](const NamedTensors<Complex>& z) { return loss(z, s, dcontext, fault); });
    if (top) return g;
    std::vector<double> before;
    for (Index i = 0; i < s.I; ++i) {
      const auto d = normals(s.N * s.C, static_cast<std::uint64_t>(20 + i));
      before.insert(before.end(), d.begin(), d.end());
    }
    g["source"] = sum_of(g["source"], before);
    return g;
  }

  Tensors forward, gradients;
  std::vector<double> kept, walked_back;
  bool intact = true;

 private:
  std::vector<double> slice(const std::vector<double>& all, Index i) const {
    return {all.begin() + i * s_.N * s_.C, all.begin() + (i + 1) * s_.N * s_.C};
  }
  DepthSources<V> sources(Index count) {
    return {.count = count,
            .first_NC = first_.data(),
            .others_NC = others_NC_.data(),
            .rho_N = rho_N_.data(),
            .q_C = q_.data(),
            .norm_C = norm_.data()};
  }
  const Shape s_;
  const Buffer<float> q_, norm_, first_;
  std::vector<Buffer<V>> others_;
  std::vector<const V*> others_NC_;
  std::vector<Buffer<float>> rho_;
  std::vector<const float*> rho_N_;
  Buffer<T> context_;
  Buffer<float> rstd_, alpha_;
};

// Scores, mixture, norm: sums over C and over sources; and their gradients.
Index roundings(Shape s) { return 16 * s.C + 8 * s.I + s.N + 60; }

template <class T, class V>
void check_against_the_oracle() {
  for (const Shape s : kShapes)
    for (const bool top : {false, true}) {
      const Tensors t = inputs<V>(s);
      const PassBothWays<T, V> r(t, s, top, 2);
      EXPECT_TRUE(r.intact);
      const auto x_in = ref::depth_mix(t.at("source"), t.at("q"), s.I, s.N, s.C);
      EXPECT_LT(rounding_ratio(r.forward.at("context"), ref::rmsnorm(x_in, t.at("norm"), s.N, s.C),
                               roundings(s), sizeof(T) == 2 ? kBf16Epsilon : 0),
                1)
          << s.I;
      // The newest source's gradient is stored as T; an f32 error in another would be far above rounding too.
      const auto error = [&](Fault fault) {
        return worst_ratio<T>(r.gradients, PassBothWays<T, V>::truth(t, s, top, fault), roundings(s),
                              {s.I > 1 ? "source" : ""});
      };
      EXPECT_LT(error(Fault::kNone), 1) << s.I << " " << s.N << " " << s.C << " " << top;
      EXPECT_GT(error(Fault::kFixedNorm), 1);
      if (s.I == 1) continue;
      EXPECT_GT(error(Fault::kFixedWeights), 1);
      EXPECT_GT(error(Fault::kFixedRho), 1);
    }
}

TEST(DepthAttention, IsTheOracles) {
  check_against_the_oracle<float, float>();
  check_against_the_oracle<bf16, bf16>();
  check_against_the_oracle<bf16, float>();
}

TEST(DepthAttention, BitsDoNotDependOnThreads) {
  const Shape s{7, 301, 33};
  const Tensors t = inputs<float>(s);
  const PassBothWays<float, float> one(t, s, false, 1);
  for (int threads : {2, 3}) {
    const PassBothWays<float, float> more(t, s, false, threads);
    EXPECT_EQ(more.forward, one.forward);
    EXPECT_EQ(more.gradients, one.gradients);
  }
}

// A sum: h enters it in the pass, its gradient goes to h and stays for the earlier terms, and h leaves it again.
TEST(DepthAttention, SumsGrowAndAreWalkedBack) {
  const Shape s{4, 5, 19};
  const Tensors t = inputs<float>(s);
  for (const bool top : {false, true}) {
    const PassBothWays<float, float> whole(t, s, top, 2), r(t, s, top, 2, true);
    EXPECT_TRUE(r.intact);
    const std::vector<double> newest(t.at("source").end() - s.N * s.C, t.at("source").end());
    EXPECT_LT(rounding_ratio(r.forward.at("newest"), newest, 2), 1);
    EXPECT_LT(worst_ratio<float>(r.forward, whole.forward, roundings(s), {}), 1);
    EXPECT_LT(worst_ratio<float>(r.gradients, whole.gradients, roundings(s), {}), 1);
    const std::vector<double> dh(r.gradients.at("source").end() - s.N * s.C, r.gradients.at("source").end());
    EXPECT_EQ(r.kept, dh);
    const auto h = normals(s.N * s.C, 4);
    EXPECT_LT(rounding_ratio(sum_of(r.walked_back, h), newest, 4), 1);
    EXPECT_GT(rounding_ratio(r.walked_back, newest, 4), 1);
  }
}

// A query of zero: the plain mean, whatever the sources. Weights sum to one in any case.
TEST(DepthAttention, WithoutAQueryItIsTheMean) {
  const Shape s{5, 3, 19};
  Tensors t = inputs<float>(s);
  const auto row_sums = [&](const std::vector<double>& alpha) {
    std::vector<double> sums(static_cast<std::size_t>(s.N), 0.0);
    for (Index n = 0; n < s.N; ++n)
      for (Index i = 0; i < s.I; ++i) sums[n] += alpha[n * s.I + i];
    return sums;
  };
  const PassBothWays<float, float> asked(t, s, false, 1);
  EXPECT_LT(rounding_ratio(row_sums(asked.forward.at("alpha")), {1, 1, 1}, s.I), 1);
  std::fill(t["q"].begin(), t["q"].end(), 0.0);
  const std::vector<double> even(static_cast<std::size_t>(s.N * s.I), 0.2);
  const PassBothWays<float, float> r(t, s, false, 1);
  EXPECT_LT(rounding_ratio(r.forward.at("alpha"), even, 2), 1);
  EXPECT_GT(rounding_ratio(asked.forward.at("alpha"), even, 2), 1);
}

// Scores far beyond the exponential's range.
TEST(DepthAttention, LargeScoresStayFinite) {
  const Shape s{3, 2, 8};
  Tensors t = inputs<float>(s);
  for (double& q : t["q"]) q *= 1000;
  const PassBothWays<float, float> r(t, s, false, 1);
  for (const auto& [name, values] : r.gradients)
    for (double v : values) EXPECT_TRUE(std::isfinite(v)) << name;
  for (double a : r.forward.at("alpha")) EXPECT_TRUE(a >= 0 && a <= 1);
}

}  // namespace
}  // namespace ddl::depth_attention_test
