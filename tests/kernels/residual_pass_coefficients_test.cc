// The contract of Coefficients, with rules of the test's own, against the oracle.
#include <string>
#include <vector>

#include "kernels/residual_pass.h"
#include "kernels/residual_pass_testing.h"
#include "model/residual/delta_coefficients.h"

namespace ddl::residual_pass_test {
namespace {

// Rules of the test's own, in a pass that only writes: the contract of Coefficients.

// A rule that uses all that a rule may. Steering numbers a_0, ..., a_{D-1}, b. With q = |h|^2, p_d = h . X_d,
//   s      = 1 / sqrt(1 + q)            ds / dq = - s^3 / 2
//   r_d    = s p_d
//   coef_d = a_d (s - b r_d^2 s^2)   =  a_d (s - b p_d^2 s^4)
// so that
//   d coef_d / d a_d = s - b r_d^2 s^2
//   d coef_d / d b   = - a_d r_d^2 s^2
//   d coef_d / d p_d = - 2 a_d b r_d s^3
//   d coef_d / d q   = - a_d (1 - 4 b r_d^2 s) s^3 / 2
class CurvedRule final : public Coefficients {
 public:
  enum class Missing { kNothing, kErase, kAlong };  // the mutants
  explicit CurvedRule(Missing missing = Missing::kNothing) : missing_(missing) {}

  bool reads_state() const override { return true; }
  bool reads_h_norm() const override { return true; }
  Index saved_per_token(Index D) const override { return D + 1; }  // r_0, ..., r_{D-1}, s

  void forward(const Forward& t) const override {
    const float s = 1 / std::sqrt(1 + t.h_square), b = t.steer[t.D];
    for (Index d = 0; d < t.D; ++d) {
      const float r = t.h_dot_X_D[d] * s;
      t.saved[d] = r;
      t.coef_D[d] = t.steer[d] * (s - b * r * r * s * s);
    }
    t.saved[t.D] = s;
  }

  void backward(Backward& t) const override {
    const float b = t.steer[t.D], s = t.saved[t.D];
    float db = 0, along = 0;
    for (Index d = 0; d < t.D; ++d) {
      const float a = t.steer[d], r = t.saved[d], A = t.h_dot_G_D[d];
      t.coef_D[d] = a * (s - b * r * r * s * s);
      t.dsteer[d] = A * (s - b * r * r * s * s);
      db -= A * a * r * r * s * s;
      t.erase_D[d] = missing_ == Missing::kErase ? 0 : 2 * A * a * b * r * s * s * s;
      along += A * a * (1 - 4 * b * r * r * s) * s * s * s;
    }
    t.dsteer[t.D] = db;
    t.along = missing_ == Missing::kAlong ? 0 : along;
  }

 private:
  const Missing missing_;
};

// A rule that uses as little as a rule can: coef_d = steer_d. It saves nothing and leaves `along` alone.
class PlainRule final : public Coefficients {
 public:
  Index saved_per_token(Index) const override { return 0; }
  void forward(const Forward& t) const override { std::copy_n(t.steer, t.D, t.coef_D); }
  void backward(Backward& t) const override {
    std::copy_n(t.h_dot_G_D, t.D, t.dsteer);
    std::copy_n(t.steer, t.D, t.coef_D);
    std::fill_n(t.erase_D, t.D, 0.0f);
  }
};

// coef_d from a token's steering numbers, q = |h|^2 and p = h . X_d.
struct CurvedFormula {
  template <class Num>
  Num operator()(const Num* steer, Index d, Index D, Num q, Num p) const {
    const Num s = Num(1) / sqrt(Num(1) + q);
    return steer[d] * (s - steer[D] * p * p * s * s * s * s);
  }
};
struct PlainFormula {
  template <class Num>
  Num operator()(const Num* steer, Index d, Index, Num, Num) const {
    return steer[d];
  }
};
struct DeltaFormula {  // beta (v_d - s p) s
  template <class Num>
  Num operator()(const Num* steer, Index d, Index, Num q, Num p) const {
    const Num s = Num(1) / sqrt(q + Num(1e-10));
    return steer[0] * (steer[1 + d] - s * p) * s;
  }
};

struct Shape {
  Index N = 5, D = 4, C = 19, R = 5;
};

template <class T>
Tensors inputs(const Shape& c) {
  return {{"state_NDC", normals(c.N * c.D * c.C, 41)},
          {"h_NC", normals<T>(c.N * c.C, 42)},
          {"steer_NR", normals(c.N * c.R, 43)}};
}

Tensors output_gradients(const Shape& c) { return {{"state_NDC", normals(c.N * c.D * c.C, 44)}}; }

// X_d + coef_d h
template <class Num, class Formula>
NamedTensors<Num> oracle_forward(const Shape& c, const Formula& formula, const NamedTensors<Num>& in) {
  std::vector<Num> X_NDC = in.at("state_NDC");
  for (Index n = 0; n < c.N; ++n) {
    const Num *h_C = in.at("h_NC").data() + n * c.C, *steer_R = in.at("steer_NR").data() + n * c.R;
    Num q(0);
    for (Index i = 0; i < c.C; ++i) q += h_C[i] * h_C[i];
    for (Index d = 0; d < c.D; ++d) {
      Num* X_C = X_NDC.data() + (n * c.D + d) * c.C;
      Num p(0);
      for (Index i = 0; i < c.C; ++i) p += h_C[i] * X_C[i];
      const Num coef = formula(steer_R, d, c.D, q, p);
      for (Index i = 0; i < c.C; ++i) X_C[i] += coef * h_C[i];
    }
  }
  return {{"state_NDC", X_NDC}};
}

// What the backward pass has of the state before the write.
struct Before {
  std::vector<double> stored_NDC = {};  // empty: nothing, it walks back
  bool spoilt = false;                  // the state after the write is lost: NaN
};

// Outputs under their names, gradients of the inputs under "d" + name, the state that the backward pass leaves
// under "state_before_NDC".
template <class T>
Tensors run(const Shape& c, const Coefficients& rule, const Tensors& in, const Tensors& g,
            const Before& before = {}) {
  const Exec ex{.threads = 2};
  const Index Q = rule.saved_per_token(c.D);
  Buffer<float> state_NDC(in.at("state_NDC")), dstate_NDC(g.at("state_NDC")), saved_NQ(c.N * Q);
  const Buffer<float> stored_NDC(before.stored_NDC);
  const Buffer<T> h_NC(in.at("h_NC"));
  Buffer<T> dh_NC(h_NC.size());
  Steering steer(c.N, c.R), dsteer(c.N, c.R);
  steer.put(0, in.at("steer_NR"));

  const WriteFwd<T> write{.coefficients = &rule,
                          .h_NC = h_NC.data(),
                          .steer_NR = steer.data(),
                          .steer_stride = steer.stride,
                          .saved_NQ = Q > 0 ? saved_NQ.data() : nullptr};
  residual_fwd<T>(state_NDC.data(), &write, nullptr, c.N, c.D, c.C, ex);
  Tensors result;
  result["state_NDC"] = state_NDC.values();

  if (before.spoilt) std::fill_n(state_NDC.data(), state_NDC.size(), std::numeric_limits<float>::quiet_NaN());
  const WriteBwd<T> write_bwd{.coefficients = &rule,
                              .h_NC = h_NC.data(),
                              .steer_NR = steer.data(),
                              .steer_stride = steer.stride,
                              .saved_NQ = Q > 0 ? saved_NQ.data() : nullptr,
                              .stored_state_NDC = stored_NDC.size() > 0 ? stored_NDC.data() : nullptr,
                              .dh_NC = dh_NC.data(),
                              .dsteer_NR = dsteer.data()};
  // A pass without a read needs no scratch.
  residual_bwd<T>(state_NDC.data(), dstate_NDC.data(), nullptr, &write_bwd, nullptr, c.N, c.D, c.C, ex);

  result["state_before_NDC"] = state_NDC.values();
  result["dstate_NDC"] = dstate_NDC.values();
  result["dh_NC"] = dh_NC.values();
  result["dsteer_NR"] = dsteer.all();
  EXPECT_EQ(stored_NDC.values(), before.stored_NDC);
  EXPECT_TRUE(state_NDC.intact() && dstate_NDC.intact() && saved_NQ.intact() && dh_NC.intact());
  EXPECT_TRUE(steer.intact() && dsteer.intact());
  return result;
}

// The names of the results that the oracle rejects.
template <class T, class Formula>
std::vector<std::string> rejected(const Shape& c, const Coefficients& rule, const Formula& formula) {
  const Tensors in = inputs<T>(c), g = output_gradients(c), actual = run<T>(c, rule, in, g);
  Tensors truth = oracle_forward(c, formula, in);
  truth["state_before_NDC"] = in.at("state_NDC");
  const Tensors gradients = gradients_by_complex_step(
      in, g, [&](const NamedTensors<Complex>& at) { return oracle_forward(c, formula, at); });
  for (const auto& [name, x] : gradients) truth["d" + name] = x;
  std::vector<std::string> names;
  for (const auto& [name, x] : truth)
    if (!(rounding_ratio(actual.at(name), x, pass_roundings(c.N, c.D, c.C),
                         name == "dh_NC" ? kStorage<T> : 0) < 1))
      names.push_back(name);
  return names;
}

using Names = std::vector<std::string>;

TEST(ResidualCoefficients, AnyRuleGetsItsGradients) {
  for (Index C : {2, 3, 8, 16, 19, 33})
    for (Index D : {1, 2, 4, 5, 16}) {
      const auto where = fmt::format("D {} C {}", D, C);
      const Shape c{.N = 3, .D = D, .C = C, .R = D + 1};
      EXPECT_EQ(rejected<float>(c, CurvedRule(), CurvedFormula()), Names()) << where;
      EXPECT_EQ(rejected<bf16>(c, CurvedRule(), CurvedFormula()), Names()) << where;
      const Shape plain{.N = 3, .D = D, .C = C, .R = D};
      EXPECT_EQ(rejected<float>(plain, PlainRule(), PlainFormula()), Names()) << where;
      EXPECT_EQ(rejected<bf16>(plain, PlainRule(), PlainFormula()), Names()) << where;
    }
  EXPECT_EQ(rejected<float>({}, DeltaCoefficients(DeltaCoefficients::Erase::kYes), DeltaFormula()), Names());
}

// A rule that forgets a term of its gradient is seen, and where: the erase term is in dX and dh, the other in
// dh alone.
TEST(ResidualCoefficients, MissingTermsAreSeen) {
  const CurvedRule no_erase(CurvedRule::Missing::kErase), no_along(CurvedRule::Missing::kAlong);
  EXPECT_EQ(rejected<float>({}, no_erase, CurvedFormula()), Names({"dh_NC", "dstate_NDC"}));
  EXPECT_EQ(rejected<float>({}, no_along, CurvedFormula()), Names({"dh_NC"}));
  EXPECT_EQ(rejected<bf16>({}, no_erase, CurvedFormula()), Names({"dh_NC", "dstate_NDC"}));
  EXPECT_EQ(rejected<bf16>({}, no_along, CurvedFormula()), Names({"dh_NC"}));
}

// Another formula than the rule's: everything is seen.
TEST(ResidualCoefficients, AnotherRuleIsSeen) {
  EXPECT_EQ(rejected<float>({}, CurvedRule(), DeltaFormula()),
            Names({"dh_NC", "dstate_NDC", "dsteer_NR", "state_NDC"}));
}

bool any_nan(const std::vector<double>& x) {
  return std::any_of(x.begin(), x.end(), [](double value) { return std::isnan(value); });
}

// Given the true state before the write, the backward pass does not walk back: it needs no state after it.
template <class T>
void check_stored_state(const Coefficients& rule, const Shape& c) {
  const Tensors in = inputs<T>(c), g = output_gradients(c);
  const auto& true_NDC = in.at("state_NDC");
  const Tensors walked = run<T>(c, rule, in, g);
  const Tensors stored = run<T>(c, rule, in, g, {.stored_NDC = true_NDC});
  const double storage = 2 * kStorage<T>;  // both are rounded
  for (const auto& [name, x] : walked)
    EXPECT_LT(
        rounding_ratio(stored.at(name), x, pass_roundings(c.N, c.D, c.C), name == "dh_NC" ? storage : 0), 1)
        << name;
  EXPECT_EQ(stored.at("state_before_NDC"), true_NDC);

  EXPECT_EQ(run<T>(c, rule, in, g, {.stored_NDC = true_NDC, .spoilt = true}), stored);
  const Tensors lost = run<T>(c, rule, in, g, {.spoilt = true});
  EXPECT_TRUE(any_nan(lost.at("dh_NC")));
  EXPECT_TRUE(any_nan(lost.at("state_before_NDC")));

  // The mutant: the copy is of the state after the write. A rule that erases sees it in dh.
  if (!rule.reads_state()) return;
  const Tensors wrong = run<T>(c, rule, in, g, {.stored_NDC = walked.at("state_NDC")});
  EXPECT_GT(rounding_ratio(wrong.at("dh_NC"), walked.at("dh_NC"), pass_roundings(c.N, c.D, c.C), storage), 1);
}

TEST(ResidualStoredState, ReplacesTheWalkBack) {
  const DeltaCoefficients delta(DeltaCoefficients::Erase::kYes), write_only(DeltaCoefficients::Erase::kNo);
  const CurvedRule curved;
  for (const Coefficients* rule : std::initializer_list<const Coefficients*>{&delta, &write_only, &curved})
    for (Index D : {1, 4, 5}) {
      check_stored_state<float>(*rule, {.D = D, .R = D + 1});
      check_stored_state<bf16>(*rule, {.D = D, .R = D + 1});
    }
}

}  // namespace
}  // namespace ddl::residual_pass_test
