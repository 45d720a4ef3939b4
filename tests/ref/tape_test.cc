// Gradients by tape against complex step: each operation by itself, then every parameter of tiny models; and
// wrong derivatives, which the same comparisons reject.
#include "ref/tape.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "ref/complex_step.h"
#include "ref/model.h"
#include "ref/tiny_model.h"
#include "ref/tolerance.h"

namespace ddl::ref::by_tape {
namespace {

using Real = std::vector<double>;
constexpr Index B = kTinyBatch, T = kTinyTime;

// The two ways of the same derivative differ by rounding only. A whole model magnifies it by the ratio of its
// terms to their sum; complex tanh and division of one operation by a few units.
constexpr double kModelTolerance = 1e-12, kOperationTolerance = 1e-14;
constexpr double kClearlyWrong = 1e-3;

// max |a_i - truth_i| / max |truth_i|
double relative_distance(const Real& a, const Real& truth) { return distance(a, truth) / largest(truth); }

// Each operation.

// The largest relative_distance between tape and complex step of f(a, b) over random points with b > 0.
// The first function is differentiated by tape, the second by complex step.
template <class TapeF, class F>
double worst_slope(TapeF by_tape, F f) {
  const Index points = 100;
  const Real a = normals(points, "a", 2), b = normals(points, "b", 2);
  double worst = 0;
  for (Index i = 0; i < points; ++i) {
    const Real x = {a[i], std::abs(b[i]) + 0.01};
    worst = std::max(
        worst, relative_distance(gradient_by_tape([&](const auto& p) { return by_tape(p[0], p[1]); }, x),
                                 gradient([&](const auto& p) { return f(p[0], p[1]); }, x)));
  }
  return worst;
}

template <class F>
void expect_operation(const char* what, F f) {
  EXPECT_LE(worst_slope(f, f), kOperationTolerance) << what;
}

TEST(Tape, EveryOperationAgreesWithComplexStep) {
  expect_operation("-a", [](auto a, auto) { return -a; });
  expect_operation("a + b", [](auto a, auto b) { return a + b; });
  expect_operation("a - b", [](auto a, auto b) { return a - b; });
  expect_operation("a * b", [](auto a, auto b) { return a * b; });
  expect_operation("a / b", [](auto a, auto b) { return a / b; });
  expect_operation("exp", [](auto a, auto) { return exp(a); });
  expect_operation("log", [](auto, auto b) { return log(b); });
  expect_operation("sqrt", [](auto, auto b) { return sqrt(b); });
  expect_operation("tanh", [](auto a, auto) { return tanh(a); });
}

TEST(Tape, ConstantsOnEitherSide) {
  expect_operation("a + 3", [](auto a, auto) { return a + 3.0; });
  expect_operation("3 + a", [](auto a, auto) { return 3.0 + a; });
  expect_operation("a - 3", [](auto a, auto) { return a - 3.0; });
  expect_operation("3 - a", [](auto a, auto) { return 3.0 - a; });
  expect_operation("a * 3", [](auto a, auto) { return a * 3.0; });
  expect_operation("3 * a", [](auto a, auto) { return 3.0 * a; });
  expect_operation("b / 3", [](auto, auto b) { return b / 3.0; });
  expect_operation("3 / b", [](auto, auto b) { return 3.0 / b; });
}

TEST(Tape, AssignmentsAndNumbersUsedTwice) {
  expect_operation("a += b", [](auto a, auto b) { return a += b; });
  expect_operation("a -= b", [](auto a, auto b) { return a -= b; });
  expect_operation("a *= b", [](auto a, auto b) { return a *= b; });
  expect_operation("a /= b", [](auto a, auto b) { return a /= b; });
  expect_operation("a += a", [](auto a, auto) { return a += a; });
  expect_operation("a *= a", [](auto a, auto) { return a *= a; });
  expect_operation("sigmoid", [](auto a, auto) { return sigmoid(a); });
  expect_operation("silu", [](auto a, auto) { return silu(a); });
  expect_operation("a / sqrt(a a + b)", [](auto a, auto b) { return a / sqrt(a * a + b); });
  expect_operation("b exp(a) + tanh(a) log(b)", [](auto a, auto b) { return b * exp(a) + tanh(a) * log(b); });
}

TEST(Tape, WrongDerivativesAreRejected) {
  const auto expect_rejected = [](const char* what, auto wrong, auto right) {
    EXPECT_GT(worst_slope(wrong, right), kClearlyWrong) << what;
  };
  expect_rejected(
      "difference with the sign of a sum",
      [](Var a, Var b) { return Var::make(real(a) - real(b), a, 1, b, 1); },
      [](auto a, auto b) { return a - b; });
  expect_rejected(
      "product with its factors swapped",
      [](Var a, Var b) { return Var::make(real(a) * real(b), a, real(a), b, real(b)); },
      [](auto a, auto b) { return a * b; });
  expect_rejected(
      "quotient with a constant denominator",
      [](Var a, Var b) { return Var::make(real(a) / real(b), a, 1 / real(b)); },
      [](auto a, auto b) { return a / b; });
  expect_rejected(
      "exp with derivative 1", [](Var a, Var) { return Var::make(std::exp(real(a)), a, 1); },
      [](auto a, auto) { return exp(a); });
  expect_rejected(
      "sqrt without its half",
      [](Var, Var b) { return Var::make(std::sqrt(real(b)), b, 1 / std::sqrt(real(b))); },
      [](auto, auto b) { return sqrt(b); });
  expect_rejected(
      "tanh with 1 - y", [](Var a, Var) { return Var::make(std::tanh(real(a)), a, 1 - std::tanh(real(a))); },
      [](auto a, auto) { return tanh(a); });
}

TEST(Tape, ConstantsCostNothing) {
  Tape tape;
  const Tape::Scope scope(tape);
  const Var constant = exp(Var(2) * Var(3) - Var(1)) / sqrt(Var(7));
  EXPECT_EQ(tape.size(), 0);
  EXPECT_EQ(real(constant), std::exp(5.0) / std::sqrt(7.0));
  const Var x = tape.variable(2), unused = tape.variable(5);
  const Var y = constant * x;
  EXPECT_EQ(tape.size(), 3);
  tape.gradients(y);
  EXPECT_EQ(tape.gradient(x), real(constant));
  EXPECT_EQ(tape.gradient(unused), 0);
  tape.gradients(constant);
  EXPECT_EQ(tape.gradient(x), 0);
}

TEST(Tape, ScopesNestAndEachThreadHasItsOwn) {
  Tape outer, inner, other;
  const Tape::Scope scope(outer);
  const Var x = outer.variable(3);
  {
    const Tape::Scope nested(inner);
    const Var z = inner.variable(4);
    inner.gradients(z * z);
    EXPECT_EQ(inner.gradient(z), 8);
  }
  std::thread([&] {
    const Tape::Scope elsewhere(other);
    const Var z = other.variable(5);
    other.gradients(z * z);
    EXPECT_EQ(other.gradient(z), 10);
  }).join();
  EXPECT_EQ(outer.size(), 1);
  outer.gradients(x * x);
  EXPECT_EQ(outer.gradient(x), 6);
  EXPECT_EQ(outer.gradients(x * x).size(), 3u);  // two products and x: a second walk starts from zero
  EXPECT_EQ(outer.gradient(x), 6);
  outer.clear();
  EXPECT_EQ(outer.size(), 0);
}

TEST(TapeDeathTest, MisuseIsCaught) {
  Tape tape;
  const Var x = tape.variable(3);
  EXPECT_DEATH(x * x, "no tape");
  EXPECT_DEATH(tape.gradient(x), "gradients\\(\\) has not seen");
}

// The whole model.

// The worst relative_distance of any tensor.
double worst_tensor(const Parameters<double>& a, const Parameters<double>& truth) {
  EXPECT_EQ(a.size(), truth.size());
  double worst = 0;
  for (const auto& [name, values] : truth) worst = std::max(worst, relative_distance(a.at(name), values));
  return worst;
}

// Together they have every rule of expanding, reading and writing, every gate and every value branch.
const char* const kModels[] = {
    "baseline",
    "ddl-dv1/biased",
    "ddl-tc/sigmoid",
    "ddl-cc-noec/sigmoid",
    "ddl-cc/linear",
    "ddl-cc/sigmoid/two_layer",
    "ddl-cc/sigmoid/scale",
    "wo-cc/constant",
    "wo-tc/sigmoid",
    "ddl-cc/sigmoid/eps_width",
    "ddl-cc/sigmoid/per_sublayer",
};

TEST(TapeModel, EveryParameterAgreesWithComplexStep) {
  for (const char* name : kModels) {
    const Config config = tiny_config(name);
    const Parameters<double> parameters = formula_parameters(config);
    const Parameters<double> truth = loss_gradient(config, parameters, tiny_tokens(), tiny_targets(), B, T);
    Parameters<double> g = loss_gradient_by_tape(config, parameters, tiny_tokens(), tiny_targets(), B, T);
    EXPECT_LE(worst_tensor(g, truth), kModelTolerance) << name;
    for (auto& [tensor, values] : g) {  // one number of one tensor off by a thousand millionth is seen
      const double keep = values.back();
      values.back() += 1e-9 * largest(truth.at(tensor));
      EXPECT_GT(worst_tensor(g, truth), 100 * kModelTolerance) << name << " " << tensor;
      values.back() = keep;
    }
  }
}

TEST(TapeModel, LossIsThatOfDoubleBitForBit) {
  for (const std::string& name : tiny_names()) {
    const Config config = tiny_config(name);
    const Parameters<double> parameters = formula_parameters(config);
    Tape tape;
    const Tape::Scope scope(tape);
    Parameters<Var> variables;
    for (const auto& [tensor, values] : parameters)
      for (const double value : values) variables[tensor].push_back(tape.variable(value));
    EXPECT_EQ(real(loss(config, variables, tiny_tokens(), tiny_targets(), B, T)),
              loss(config, parameters, tiny_tokens(), tiny_targets(), B, T))
        << name;
  }
}

// A Var whose tanh has a wrong derivative; everything else is Var's.
class CrookedVar : public Var {
 public:
  using Var::Var;
  CrookedVar(const Var& x) : Var(x) {}
  friend CrookedVar tanh(const CrookedVar& a) {
    const double y = std::tanh(real(a));
    return make(y, a, 1 + y * y);
  }
};

// The gradient with respect to all parameters, in name order, of a forward pass in Num.
template <class Num>
Parameters<double> gradient_in(const Config& config, const Parameters<double>& parameters) {
  Real flat;
  for (const auto& [name, values] : parameters) flat.insert(flat.end(), values.begin(), values.end());
  const auto unflatten = [&]<class To, class From>(const std::vector<From>& numbers, Parameters<To>& result) {
    auto next = numbers.begin();
    for (const auto& [name, values] : parameters)
      for (std::size_t i = 0; i < values.size(); ++i) result[name].push_back(To(*next++));
  };
  const auto f = [&](const std::vector<Var>& p) -> Var {
    Parameters<Num> numbers;
    unflatten(p, numbers);
    return loss(config, numbers, tiny_tokens(), tiny_targets(), B, T);
  };
  Parameters<double> result;
  unflatten(gradient_by_tape(f, flat), result);
  return result;
}

TEST(TapeModel, AWrongTanhInTheGateIsRejected) {
  const Config config = tiny_config("ddl-cc/sigmoid/two_layer");
  const Parameters<double> parameters = formula_parameters(config);
  const Parameters<double> truth = loss_gradient(config, parameters, tiny_tokens(), tiny_targets(), B, T);
  EXPECT_LE(worst_tensor(gradient_in<Var>(config, parameters), truth), kModelTolerance);
  EXPECT_GT(worst_tensor(gradient_in<CrookedVar>(config, parameters), truth), kClearlyWrong);
}

TEST(TapeModel, LearnsByGradientDescent) {
  const Config config = tiny_config("ddl-cc/sigmoid");
  Parameters<double> parameters = formula_parameters(config);
  const auto evaluate = [&] { return loss(config, parameters, tiny_tokens(), tiny_targets(), B, T); };
  const double before = evaluate();
  for (int step = 0; step < 100; ++step) {
    const auto g = loss_gradient_by_tape(config, parameters, tiny_tokens(), tiny_targets(), B, T);
    double square = 0;
    for (const auto& [name, values] : g)
      for (const double value : values) square += value * value;
    const double rate = 0.1 / std::max(1.0, std::sqrt(square));
    for (auto& [name, values] : parameters)
      for (std::size_t i = 0; i < values.size(); ++i) values[i] -= rate * g.at(name)[i];
  }
  EXPECT_LT(evaluate(), before / 2);
}

}  // namespace
}  // namespace ddl::ref::by_tape
