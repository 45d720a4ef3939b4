// The fast model against the oracle: loss and the gradient of every parameter, for every rule and option.
#include "model/model.h"

#include <gtest/gtest.h>

#include "model/oracle_model.h"

namespace ddl {
namespace {

void check(const Case& c) {
  const ModelConfig m = model_config(c);
  const ref::Config r = oracle_config(c);
  const Exec ex{.threads = 2};
  const Index N = c.B * c.T;
  const auto model = make_model(m, {c.B, c.T}, Model::Mode::kTrain, 1, ex);
  scramble(*model);
  const auto x = tokens(N, 1), y = tokens(N, 2);
  const BatchView batch{x.data(), y.data()};
  const double loss = model->loss_and_grad(batch, 1, ex);
  const auto parameters = oracle_parameters(*model);
  const std::string name = fmt::format("{} D {} value {} gate {} compressor {} T {}", c.residual, c.channels,
                                       c.value, c.gate, c.compressor, c.T);
  // The same tensors, no more and no fewer.
  const auto counts = ref::parameter_counts(r);
  ASSERT_EQ(counts.size(), model->table().list().size()) << name;
  for (const Param& p : model->table().list()) ASSERT_EQ(counts.at(p.name), p.count) << p.name << " " << name;

  const double truth = ref::loss(r, parameters, x, y, c.B, c.T);
  EXPECT_LT(rounding_ratio({loss}, {truth}, roundings(m, N)), 1) << name;
  EXPECT_EQ(model->loss(batch, {}, ex), loss) << "the loss alone takes the same path: " << name;
  const auto gradients = ref::loss_gradient(r, parameters, x, y, c.B, c.T);
  const auto moved = ref::loss_gradient(r, nudged(parameters), x, y, c.B, c.T);
  std::vector<double> everything;
  for (const auto& [tensor_name, values] : gradients)
    everything.insert(everything.end(), values.begin(), values.end());
  for (const Param& p : model->table().list()) {
    const auto& expected = gradients.at(p.name);
    if (rms(expected) <
        1e-10 * rms(everything)) {  // zero by symmetry (q and k of a single token): so must ours be
      EXPECT_LT(rms(tensor(model->grads(), p)), 16 * 0x1p-24 * std::sqrt(roundings(m, N)) * rms(everything))
          << p.name << " of " << name;
      continue;
    }
    EXPECT_LT(rounding_ratio(tensor(model->grads(), p), expected, roundings(m, N)),
              amplification(expected, moved.at(p.name)))
        << p.name << " of " << name;
  }
}

class EveryRule : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Model, EveryRule, testing::ValuesIn(rule_names()), [](const auto& param_info) {
  std::string name = param_info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST_P(EveryRule, LossAndEveryGradient) { check({.residual = GetParam()}); }

TEST_P(EveryRule, EveryValueBranchAndGate) {
  if (GetParam() == "baseline") return;  // has neither
  for (const char* value : {"biased", "linear"}) check({.residual = GetParam(), .value = value});
  check({.residual = GetParam(), .gate = "two-layer"});
}

TEST_P(EveryRule, EveryChannelCount) {
  if (GetParam() == "baseline" || GetParam().ends_with("dv1")) return;  // their state has one channel
  for (Index channels : {1, 2, 4, 8}) check({.residual = GetParam(), .channels = channels, .B = 1, .T = 3});
}

TEST_P(EveryRule, SequencesShorterThanTheKernels) {
  check({.residual = GetParam(), .B = 3, .T = 1});
  check({.residual = GetParam(), .B = 2, .T = 2});
}

TEST_P(EveryRule, OneCompressorPerBlockAndMup) {
  check({.residual = GetParam(), .compressor = "block", .mup = true});
}

TEST_P(EveryRule, TargetsThatAreNotPredictedAddNothing) {
  const Case c{.residual = GetParam(), .B = 1, .T = 6};
  const Exec ex{};
  const auto some = make_model(model_config(c), {1, 6}, Model::Mode::kTrain, 1, ex);
  const auto x = tokens(6, 1);
  auto y = tokens(6, 2);
  for (Index i = 3; i < 6; ++i) y[i] = -1;
  scramble(*some);
  const double masked = some->loss_and_grad({x.data(), y.data()}, 1, ex);
  const auto shorter = make_model(model_config(c), {1, 3}, Model::Mode::kTrain, 1, ex);
  scramble(*shorter);
  EXPECT_LT(rounding_ratio({masked}, {shorter->loss_and_grad({x.data(), y.data()}, 1, ex)}, 100), 1);
  // A leak would be as large as the gradient itself; rounding, however amplified, is far below.
  for (const Param& p : some->table().list()) {
    auto difference = tensor(some->grads(), p);
    const auto expected = tensor(shorter->grads(), p);
    for (std::size_t i = 0; i < expected.size(); ++i) difference[i] -= expected[i];
    EXPECT_LT(rms(difference), 1e-3 * rms(expected)) << p.name;
  }
}

// Threads, recomputation: the same bits. Gradients accumulate.
// Wide enough that products are shared by threads (a product below a million operations never is).
TEST_P(EveryRule, BitsDoNotDependOnThreadsOrRecomputation) {
  ModelConfig m = model_config({.residual = GetParam()});
  m.width = 96, m.heads = 2, m.mlp = 0, m.vocab = 50, m.context = 40;
  const auto x = tokens(80, 1, 50), y = tokens(80, 2, 50);
  std::vector<float> grads;
  double loss = 0;
  for (const char* recompute : {"none", "mlp", "block"})
    for (int threads : {1, 2}) {
      m.recompute = recompute;
      const Exec ex{.threads = threads};
      const auto model = make_model(m, {2, 40}, Model::Mode::kTrain, 3, ex);
      scramble(*model);
      const double l = model->loss_and_grad({x.data(), y.data()}, 1, ex);
      if (grads.empty()) {
        grads.assign(model->grads().begin(), model->grads().end());
        loss = l;
      }
      EXPECT_EQ(l, loss) << recompute << threads;
      EXPECT_TRUE(std::equal(grads.begin(), grads.end(), model->grads().begin()))
          << recompute << " " << threads;
      model->loss_and_grad({x.data(), y.data()}, 1, ex);
      for (const Param& p : model->table().list())
        for (Index i = p.offset; i < p.offset + p.count; ++i)
          ASSERT_NEAR(model->grads()[i], 2 * grads[i], 1e-3 * std::abs(grads[i]) + 1e-6) << p.name;
    }
}

// The largest relative distance, by root mean square, between two models' gradients of a tensor.
double distance(Model& model, Model& truth) {
  double worst = 0;
  for (const Param& p : truth.table().list()) {
    auto difference = tensor(model.grads(), p);
    const auto expected = tensor(truth.grads(), p);
    for (std::size_t i = 0; i < expected.size(); ++i) difference[i] -= expected[i];
    worst = std::max(worst, rms(difference) / rms(expected));
  }
  return worst;
}

// On its way through a sublayer a value is rounded to bf16 six times (both operands of two products and their
// results), its gradient twelve times. A rounding is uniform within eps/2 either way, a standard deviation of
// eps / (2 sqrt 3); independent ones add as squares. How much a rounding in one place moves a gradient in
// another depends on the model, so that is measured, in f32: two of the eighteen are the weights', and
// rounding those alone shows a third of the whole (sqrt 2/18). Twice as much for chance.
TEST_P(EveryRule, Bf16IsWithinItsRounding) {
  ModelConfig m = model_config({.residual = GetParam()});
  m.width = 64, m.heads = 2, m.mlp = 0, m.vocab = 50, m.context = 40;
  const Exec ex{.threads = 2};
  const auto x = tokens(80, 1, 50);
  auto y = tokens(80, 2, 50);
  const auto f32 = make_model(m, {2, 40}, Model::Mode::kTrain, 3, ex);
  const auto rounded = make_model(m, {2, 40}, Model::Mode::kTrain, 3, ex);
  for (float& w : rounded->params()) w = to_float(to_bf16(w));
  m.precision = "bf16";
  const auto b16 = make_model(m, {2, 40}, Model::Mode::kTrain, 3, ex);
  const double loss32 = f32->loss_and_grad({x.data(), y.data()}, 1, ex);
  const double loss16 = b16->loss_and_grad({x.data(), y.data()}, 1, ex);
  rounded->loss_and_grad({x.data(), y.data()}, 1, ex);
  const double deviation = kBf16Epsilon / (2 * std::sqrt(3.0));
  EXPECT_NEAR(loss16, loss32, 3 * deviation * std::sqrt(6.0 * static_cast<double>(m.sublayers())) * loss32);
  const double bound = 2 * 3 * distance(*rounded, *f32);
  EXPECT_LT(distance(*b16, *f32), bound);

  y[7] = -1;  // mutant: one of eighty tokens left out
  std::fill(f32->grads().begin(), f32->grads().end(), 0.0f);
  f32->loss_and_grad({x.data(), y.data()}, 1, ex);
  EXPECT_GT(distance(*b16, *f32), bound);
}

TEST_P(EveryRule, PlanSaysWhatIsTaken) {
  const ModelConfig m = model_config({.residual = GetParam()});
  const ModelPlan plan = plan_model(m, {2, 5});
  const auto model = make_model(m, {2, 5}, Model::Mode::kTrain, 1, default_exec());
  EXPECT_EQ(plan.total_bytes, model->arena().used_bytes());
  EXPECT_EQ(plan.table.parameter_count(), model->table().parameter_count());
}

// A control differs from its twin in the update alone.
TEST(Controls, ShareParametersAndStartingValuesWithTheirTwin) {
  for (const auto& [delta, control] :
       {std::pair{"ddl-dv1", "wo-dv1"}, {"ddl-tc", "wo-tc"}, {"ddl-cc", "wo-cc"}}) {
    const auto a = make_model(model_config({.residual = delta}), {1, 4}, Model::Mode::kTrain, 5, Exec{});
    const auto b = make_model(model_config({.residual = control}), {1, 4}, Model::Mode::kTrain, 5, Exec{});
    ASSERT_EQ(a->table().list().size(), b->table().list().size());
    EXPECT_TRUE(std::equal(a->params().begin(), a->params().end(), b->params().begin(), b->params().end()));
    const auto x = tokens(4, 1), y = tokens(4, 2);
    EXPECT_NE(a->loss({x.data(), y.data()}, {}, Exec{}), b->loss({x.data(), y.data()}, {}, Exec{}));
  }
}

TEST(Presets, HaveThePapersSizes) {
  const auto millions = [](const char* name) {
    ModelConfig c = preset(name);
    c.residual = "baseline";
    return static_cast<double>(plan_model(c, {1, 8}).table.parameter_count()) / 1e6;
  };
  EXPECT_NEAR(millions("small"), 124, 1);
  EXPECT_NEAR(millions("medium"), 353, 1);
  EXPECT_NEAR(millions("tiny"), 1, 0.2);
  EXPECT_NEAR(millions("mini"), 10, 1);
  EXPECT_THROW(preset("smal"), UserError);
}

TEST(BadSizes, AreRefusedWithTheNumbers) {
  const auto error = [](auto change, BatchShape shape = {1, 4}) -> std::string {
    ModelConfig m = model_config({});
    change(m);
    try {
      make_model(m, shape, Model::Mode::kTrain, 1, Exec{});
    } catch (const UserError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_NE(error([](auto& m) { m.heads = 3; }).find("model.heads is 3, which does not divide model.width 8"),
            std::string::npos);
  EXPECT_NE(error([](auto& m) { m.heads = 8; }).find("even"), std::string::npos);
  EXPECT_NE(error([](auto&) {}, {1, 17}).find("1 to 16 tokens"), std::string::npos);
  EXPECT_NE(error([](auto&) {}, {0, 4}).find("1 to 1048576 sequences"), std::string::npos);
  EXPECT_NE(error([](auto& m) { m.residual = "ddl-xx"; }).find("nearest"), std::string::npos);
  EXPECT_NE(error([](auto& m) { m.context = 1 << 20; }, {1 << 12, 1 << 20}).find("the machine has"),
            std::string::npos);
}

}  // namespace
}  // namespace ddl
