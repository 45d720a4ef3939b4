// Elementwise writes with the norm behind them: forward, every gradient by complex step, mutants of the formulas.
#include "kernels/elementwise_residual.h"

#include "kernels/named_gradients.h"
#include "ref/depth_ops.h"

namespace ddl::elementwise_residual_test {
namespace {

using Tensors = NamedTensors<double>;

enum class Kind { kDecay, kHighway };
// What a mutant of the formulas gets wrong.
enum class Fault { kNone, kNoDecay, kNoEmbedding, kGateWithoutContext, kFixedGate, kFixedNorm };

struct Shape {
  Index N, C;
};
const Shape kShapes[] = {{1, 2}, {2, 3}, {5, 8}, {3, 19}, {40, 9}, {2, 33}};

template <class T>
Tensors inputs(Kind kind, Shape s) {
  Tensors t{{"x", normals(s.N * s.C, 1)}, {"h", normals<T>(s.N * s.C, 2)}, {"next_norm", normals(s.C, 3)}};
  if (kind == Kind::kDecay)
    t["x0"] = normals(s.N * s.C, 4), t["a"] = {0.7}, t["b"] = {-0.4};
  else
    t["w"] = normals(s.C, 5), t["bias"] = normals(s.C, 6), t["norm"] = normals(s.C, 7);
  for (auto& [name, x] : t)
    for (double& v : x) v = static_cast<double>(static_cast<float>(v));
  return t;
}

// The real parts alone: what does not move with the inputs.
template <class Num>
std::vector<Num> still(std::vector<Num> x) {
  for (Num& v : x) v = Num(std::real(v));
  return x;
}

// "next" and "context".
template <class Num>
NamedTensors<Num> forward(Kind kind, const NamedTensors<Num>& t, Shape s, Fault fault = Fault::kNone) {
  std::vector<Num> next;
  if (kind == Kind::kDecay) {
    next =
        ref::decay_write(t.at("x"), t.at("x0"), t.at("h"), fault == Fault::kNoDecay ? Num(1) : t.at("a")[0],
                         fault == Fault::kNoEmbedding ? Num(0) : t.at("b")[0]);
  } else {
    auto c = ref::rmsnorm(t.at("x"), t.at("norm"), s.N, s.C);
    auto w = t.at("w"), bias = t.at("bias");
    if (fault == Fault::kGateWithoutContext) c = still(c);
    if (fault == Fault::kFixedGate) c = still(c), w = still(w), bias = still(bias);
    next = ref::highway_write(t.at("x"), c, t.at("h"), w, bias, s.N, s.C);
  }
  return {{"next", next},
          {"context",
           ref::rmsnorm(fault == Fault::kFixedNorm ? still(next) : next, t.at("next_norm"), s.N, s.C)}};
}

// What arrives from later sublayers.
struct Arriving {
  std::vector<double> dcontext, dstate, dx0;
  explicit Arriving(Shape s)
      : dcontext(normals(s.N * s.C, 11)), dstate(normals(s.N * s.C, 12)), dx0(normals(s.N * s.C, 13)) {}
};

Tensors true_gradients(Kind kind, const Tensors& t, Shape s, const Arriving& in, bool top, Fault fault) {
  Tensors g = named_gradients(t, [&](const NamedTensors<Complex>& z) {
    const auto out = forward(kind, z, s, fault);
    Complex loss = weighted_sum(out.at("context"), in.dcontext);
    if (!top) loss += weighted_sum(out.at("next"), in.dstate);
    return loss;
  });
  if (kind == Kind::kDecay && !top) g["x0"] = sum_of(g["x0"], in.dx0);
  return g;
}

// Runs the kernels. `top`: nothing arrived yet, and what lies in dstate must not matter.
template <class T>
struct Result {
  Tensors forward, gradients;
  bool intact = true;
};
template <class T>
Result<T> run(Kind kind, const Tensors& t, Shape s, const Arriving& in, bool top, int threads) {
  const auto [N, C] = s;
  const Exec ex{.threads = threads};
  const auto buffer = [&](const char* name) { return Buffer<float>(t.at(name)); };
  const Buffer<float> x = buffer("x"), next_norm = buffer("next_norm"), dcontext(in.dcontext);
  const Buffer<T> h(t.at("h"));
  Buffer<float> next(N * C), rstd(N), next_rstd(N), scratch(elementwise_residual_scratch(C)), dnext_norm(C);
  Buffer<T> context(N * C), dh(N * C);
  const std::vector<double> garbage(static_cast<std::size_t>(N * C), std::nan(""));
  Buffer<float> dstate(top ? garbage : in.dstate), dx0(top ? garbage : in.dx0);
  const NormFwd<T> norm{.norm_C = next_norm.data(), .context_NC = context.data(), .rstd_N = next_rstd.data()};
  const NormBwd norm_backward{.norm_C = next_norm.data(),
                              .rstd_N = next_rstd.data(),
                              .dcontext_NC = dcontext.data(),
                              .dnorm_C = dnext_norm.data()};
  const Write mode = top ? Write::kOverwrite : Write::kAccumulate;
  Result<T> r;
  if (kind == Kind::kDecay) {
    const Buffer<float> x0 = buffer("x0");
    const auto a = static_cast<float>(t.at("a")[0]), b = static_cast<float>(t.at("b")[0]);
    Buffer<float> da(1), db(1);
    decay_fwd<T>(
        {.a = a, .b = b, .x_NC = x.data(), .x0_NC = x0.data(), .h_NC = h.data(), .next_NC = next.data()},
        norm, N, C, ex);
    decay_bwd<T>({.a = a,
                  .b = b,
                  .next_NC = next.data(),
                  .x_NC = x.data(),
                  .x0_NC = x0.data(),
                  .dh_NC = dh.data(),
                  .dstate_NC = dstate.data(),
                  .dx0_NC = dx0.data(),
                  .mode = mode,
                  .da = da.data(),
                  .db = db.data()},
                 norm_backward, scratch.data(), N, C, ex);
    r.gradients = {{"a", da.values()}, {"b", db.values()}, {"x0", dx0.values()}};
    r.intact = da.intact() && db.intact() && dx0.intact();
  } else {
    const Buffer<float> w = buffer("w"), bias = buffer("bias"), own_norm = buffer("norm");
    Buffer<float> dw(C), dbias(C), dnorm(C), gates(N);
    norm_fwd<T>({.norm_C = own_norm.data(), .context_NC = context.data(), .rstd_N = rstd.data()}, x.data(), N,
                C, ex);
    highway_fwd<T>({.w_C = w.data(),
                    .bias_C = bias.data(),
                    .x_NC = x.data(),
                    .norm_C = own_norm.data(),
                    .rstd_N = rstd.data(),
                    .h_NC = h.data(),
                    .next_NC = next.data(),
                    .mean_gate_N = gates.data()},
                   norm, N, C, ex);
    highway_bwd<T>({.w_C = w.data(),
                    .bias_C = bias.data(),
                    .next_NC = next.data(),
                    .x_NC = x.data(),
                    .norm_C = own_norm.data(),
                    .rstd_N = rstd.data(),
                    .h_NC = h.data(),
                    .dh_NC = dh.data(),
                    .dstate_NC = dstate.data(),
                    .mode = mode,
                    .dw_C = dw.data(),
                    .dbias_C = dbias.data(),
                    .dnorm_C = dnorm.data()},
                   norm_backward, scratch.data(), N, C, ex);
    r.gradients = {{"w", dw.values()}, {"bias", dbias.values()}, {"norm", dnorm.values()}};
    r.forward["gate"] = gates.values();
    r.intact = dw.intact() && dbias.intact() && dnorm.intact() && gates.intact() && rstd.intact();
  }
  r.gradients["x"] = dstate.values(), r.gradients["h"] = dh.values();
  r.gradients["next_norm"] = dnext_norm.values();
  r.forward["next"] = next.values(), r.forward["context"] = context.values();
  r.intact = r.intact && next.intact() && context.intact() && dh.intact() && dstate.intact() &&
             next_rstd.intact() && dnext_norm.intact() && scratch.intact();
  return r;
}

// A norm is two sums over C, a norm's gradient three; a parameter's gradient sums over tokens as well.
Index roundings(Shape s) { return 8 * s.C + s.N + 40; }

// da = sum over tokens and features of g x, one number whose terms may cancel. rounding_ratio allows each g to be off by
// a walk of roundings times the larger of itself and the root mean square of all. So the sum may be off by that walk
// times the sum of max(|g|, rms) |x|, whatever is left of the sum itself.
double ratio_of_sum(const std::vector<double>& actual, const std::vector<double>& expected,
                    const std::vector<double>& g, const std::vector<double>& x, Index roundings) {
  double squares = 0, size = 0;
  for (double v : g) squares += v * v;
  const double rms = std::sqrt(squares / static_cast<double>(g.size()));
  for (std::size_t i = 0; i < g.size(); ++i) size += std::max(std::abs(g[i]), rms) * std::abs(x[i]);
  // The same measure of one number of that size.
  return rounding_ratio({size + actual[0] - expected[0]}, {size}, roundings);
}

// dh is g itself.
template <class T>
double gradient_error(Kind kind, const Tensors& actual, Tensors expected, const Tensors& t, Index roundings) {
  double worst = 0;
  if (kind == Kind::kDecay)
    for (const auto& [factor, source] : {std::pair{"a", "x"}, {"b", "x0"}}) {
      worst = std::max(worst, ratio_of_sum(actual.at(factor), expected.at(factor), expected.at("h"),
                                           t.at(source), roundings));
      expected.erase(factor);
    }
  return std::max(worst, worst_ratio<T>(actual, expected, roundings, {"h"}));
}

template <class T>
void check_against_the_oracle(Kind kind) {
  for (const Shape s : kShapes)
    for (const bool top : {false, true}) {
      const Tensors t = inputs<T>(kind, s);
      const Arriving in(s);
      const Result<T> r = run<T>(kind, t, s, in, top, 2);
      EXPECT_TRUE(r.intact);
      EXPECT_LT(worst_ratio<T>(r.forward, forward(kind, t, s), roundings(s), {"context"}), 1)
          << s.N << " " << s.C;
      const auto error = [&](Fault fault) {
        return gradient_error<T>(kind, r.gradients, true_gradients(kind, t, s, in, top, fault), t,
                                 roundings(s));
      };
      EXPECT_LT(error(Fault::kNone), 1) << s.N << " " << s.C << " " << top;
      EXPECT_GT(error(Fault::kFixedNorm), 1);
      if (kind == Kind::kDecay) {
        EXPECT_GT(error(Fault::kNoDecay), 1);
        EXPECT_GT(error(Fault::kNoEmbedding), 1);
      } else {
        EXPECT_GT(error(Fault::kGateWithoutContext), 1);
        EXPECT_GT(error(Fault::kFixedGate), 1);
      }
    }
}

// Each of the two sums is judged on its own: an error of a thousandth of its terms is seen in either.
TEST(ElementwiseResidual, AnErrorInOneOfTheDecaysNumbersIsSeen) {
  for (const Shape s : kShapes) {
    const Tensors t = inputs<float>(Kind::kDecay, s);
    const Arriving in(s);
    const Tensors truth = true_gradients(Kind::kDecay, t, s, in, false, Fault::kNone);
    const auto right = run<float>(Kind::kDecay, t, s, in, false, 1).gradients;
    for (const auto& [factor, source] : {std::pair{"a", "x"}, {"b", "x0"}}) {
      double terms = 0;
      for (std::size_t i = 0; i < truth.at("h").size(); ++i)
        terms += std::abs(truth.at("h")[i] * t.at(source)[i]);
      Tensors wrong = right;
      wrong[factor][0] += 1e-3 * terms;
      EXPECT_LT(gradient_error<float>(Kind::kDecay, right, truth, t, roundings(s)), 1) << factor;
      EXPECT_GT(gradient_error<float>(Kind::kDecay, wrong, truth, t, roundings(s)), 1) << factor;
    }
  }
}

TEST(ElementwiseResidual, DecayIsTheOracles) {
  check_against_the_oracle<float>(Kind::kDecay);
  check_against_the_oracle<bf16>(Kind::kDecay);
}
TEST(ElementwiseResidual, HighwayIsTheOracles) {
  check_against_the_oracle<float>(Kind::kHighway);
  check_against_the_oracle<bf16>(Kind::kHighway);
}

TEST(ElementwiseResidual, BitsDoNotDependOnThreads) {
  const Shape s{301, 33};
  for (const Kind kind : {Kind::kDecay, Kind::kHighway}) {
    const Tensors t = inputs<float>(kind, s);
    const Arriving in(s);
    const auto one = run<float>(kind, t, s, in, false, 1);
    for (int threads : {2, 3}) {
      const auto more = run<float>(kind, t, s, in, false, threads);
      EXPECT_EQ(more.forward, one.forward);
      EXPECT_EQ(more.gradients, one.gradients);
    }
  }
}

// Decoding writes the state in place, and the statistics of one norm over those of the one before.
TEST(ElementwiseResidual, InPlaceGivesTheSameBits) {
  const Shape s{7, 19};
  const auto [N, C] = s;
  const Tensors t = inputs<float>(Kind::kHighway, s), d = inputs<float>(Kind::kDecay, s);
  const Arriving in(s);
  const auto apart = run<float>(Kind::kHighway, t, s, in, false, 1);
  Buffer<float> x(t.at("x")), context(N * C), rstd(N), gates(N);
  const Buffer<float> h(t.at("h")), w(t.at("w")), bias(t.at("bias")), norm(t.at("norm")),
      next_norm(t.at("next_norm"));
  norm_fwd<float>({.norm_C = norm.data(), .context_NC = context.data(), .rstd_N = rstd.data()}, x.data(), N,
                  C, Exec{});
  highway_fwd<float>({.w_C = w.data(),
                      .bias_C = bias.data(),
                      .x_NC = x.data(),
                      .norm_C = norm.data(),
                      .rstd_N = rstd.data(),
                      .h_NC = h.data(),
                      .next_NC = x.data(),
                      .mean_gate_N = gates.data()},
                     {.norm_C = next_norm.data(), .context_NC = context.data(), .rstd_N = rstd.data()}, N, C,
                     Exec{});
  EXPECT_EQ(x.values(), apart.forward.at("next"));
  EXPECT_EQ(context.values(), apart.forward.at("context"));

  const auto decayed = run<float>(Kind::kDecay, d, s, in, false, 1);
  Buffer<float> y(d.at("x"));
  const Buffer<float> x0(d.at("x0")), dh(d.at("h"));
  decay_fwd<float>(
      {.a = 0.7f, .b = -0.4f, .x_NC = y.data(), .x0_NC = x0.data(), .h_NC = dh.data(), .next_NC = y.data()},
      {.norm_C = next_norm.data(), .context_NC = context.data(), .rstd_N = rstd.data()}, N, C, Exec{});
  EXPECT_EQ(y.values(), decayed.forward.at("next"));
}

// The gate's ends: open, the output replaces the state; shut, the state stays to the bit.
TEST(ElementwiseResidual, AnOpenHighwayOverwritesAndAShutOneKeeps) {
  const Shape s{4, 19};
  Tensors t = inputs<float>(Kind::kHighway, s);
  std::fill(t["w"].begin(), t["w"].end(), 0.0);
  const Arriving in(s);
  std::fill(t["bias"].begin(), t["bias"].end(), 30.0);
  auto r = run<float>(Kind::kHighway, t, s, in, false, 1);
  EXPECT_LT(rounding_ratio(r.forward.at("next"), t.at("h"), 2), 1);
  EXPECT_EQ(r.forward.at("gate"), std::vector<double>(4, 1.0));
  EXPECT_GT(rounding_ratio(r.forward.at("next"), t.at("x"), 2), 1);
  std::fill(t["bias"].begin(), t["bias"].end(), -30.0);
  r = run<float>(Kind::kHighway, t, s, in, false, 1);
  EXPECT_EQ(r.forward.at("next"), t.at("x"));
  // In between, the mean of a token's gates.
  std::fill(t["bias"].begin(), t["bias"].end(), -2.0);
  r = run<float>(Kind::kHighway, t, s, in, false, 1);
  EXPECT_LT(rounding_ratio(r.forward.at("gate"), std::vector<double>(4, ref::sigmoid(-2.0)), 30), 1);
}

TEST(ElementwiseResidual, TheNormAloneAddsUpItsPaths) {
  const Shape s{6, 19};
  const auto [N, C] = s;
  const auto x = normals(N * C, 1), w = normals(C, 2), dy = normals(N * C, 3), before = normals(N * C, 4),
             more = normals(N * C, 5);
  const Buffer<float> xb(x), wb(w), dyb(dy), moreb(more);
  Buffer<float> context(N * C), rstd(N), dx(before), alone(N * C), dw(C),
      scratch(elementwise_residual_scratch(C));
  const Buffer<float> beforeb(before);
  norm_fwd<float>({.norm_C = wb.data(), .context_NC = context.data(), .rstd_N = rstd.data()}, xb.data(), N, C,
                  Exec{});
  const NormBwd norm{
      .norm_C = wb.data(), .rstd_N = rstd.data(), .dcontext_NC = dyb.data(), .dnorm_C = dw.data()};
  norm_bwd(alone.data(), beforeb.data(), nullptr, norm, xb.data(), scratch.data(), N, C, Exec{});
  norm_bwd(dx.data(), dx.data(), moreb.data(), norm, xb.data(), scratch.data(), N, C, Exec{.threads = 2});
  const auto g = named_gradients({{"x", x}, {"w", w}}, [&, N = N, C = C](const NamedTensors<Complex>& z) {
    return weighted_sum(ref::rmsnorm(z.at("x"), z.at("w"), N, C), dy);
  });
  EXPECT_LT(rounding_ratio(context.values(), ref::rmsnorm(x, w, N, C), roundings(s)), 1);
  EXPECT_LT(rounding_ratio(alone.values(), sum_of(g.at("x"), before), roundings(s)), 1);
  EXPECT_LT(rounding_ratio(dx.values(), sum_of(sum_of(g.at("x"), before), more), roundings(s)), 1);
  EXPECT_GT(rounding_ratio(dx.values(), sum_of(g.at("x"), before), roundings(s)), 1);
  EXPECT_LT(rounding_ratio(dw.values(), sum_of(g.at("w"), g.at("w")), roundings(s)), 1)
      << "accumulated twice";
}

}  // namespace
}  // namespace ddl::elementwise_residual_test
