// The fast model against the oracle: loss and the gradient of every parameter, for every rule and option.
#include <gtest/gtest.h>

#include "model/oracle_model.h"
#include "model/plan.h"
#include "ref/variant.h"

namespace ddl {
namespace {

void check(const Case& c) {
  const ModelConfig m = model_config(c);
  const Exec ex{.threads = 2};
  const Index N = c.B * c.T;
  const auto model = trainable(m, {c.B, c.T}, 1, ex);
  scramble(*model);
  const auto x = tokens(N, 1), y = tokens(N, 2);
  const BatchView batch{x.data(), y.data()};
  const double loss = model->loss_and_grad(batch, 1, ex);
  const auto parameters = oracle_parameters(model->weights());
  const std::string name = fmt::format("{} D {} value {} gate {} compressor {} T {}", c.residual, c.channels,
                                       c.value, c.gate, c.compressor, c.T);
  // The same tensors, no more and no fewer.
  const auto& table = model->weights().table().list();
  const auto counts = ref::parameter_counts(oracle_shape(m), *make_oracle<double>(m));
  ASSERT_EQ(counts.size(), table.size()) << name;
  for (const Param& p : table) ASSERT_EQ(counts.at(p.name), p.count) << p.name << " " << name;

  const Truth truth = oracle_truth(m, parameters, x, y, c.B, c.T);
  EXPECT_LT(rounding_ratio({loss}, {truth.loss}, roundings(m, N)), 1) << name;
  EXPECT_EQ(model->loss(batch, {}, ex), loss) << "the loss alone takes the same path: " << name;
  std::vector<double> everything;
  for (const auto& [tensor_name, values] : truth.gradients)
    everything.insert(everything.end(), values.begin(), values.end());
  for (const Param& p : table) {
    if (vanishes(m, p.name)) continue;
    const auto& expected = truth.gradients.at(p.name);
    const auto actual = tensor(model->gradients(), p);
    if (rms(expected) <
        1e-10 * rms(everything)) {  // zero by symmetry (q and k of a single token): so must ours be
      EXPECT_LT(rms(actual), 16 * 0x1p-24 * std::sqrt(roundings(m, N)) * rms(everything))
          << p.name << " of " << name;
      continue;
    }
    EXPECT_LT(rounding_ratio(actual, expected, roundings(m, N)),
              amplification(expected, truth.moved.at(p.name)))
        << p.name << " of " << name;
  }
}

// The oracle that a rule of the paper registers is the variant of that name, which tests/ref assembles on its own.
class NamedVariant : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Model, NamedVariant,
                         testing::Values("baseline", "ddl-dv1", "ddl-tc-noec", "ddl-cc-noec", "ddl-tc",
                                         "ddl-cc", "wo-dv1", "wo-tc", "wo-cc"),
                         rule_test_name);
TEST_P(NamedVariant, IsWhatTheRuleRegistersAsItsOracle) {
  for (const char* compressor : {"sublayer", "block"})
    for (const char* gate : {"linear", "two-layer"})
      for (const char* value : {"sigmoid", "biased", "linear"}) {
        const ModelConfig m = model_config(
            {.residual = GetParam(), .value = value, .gate = gate, .compressor = compressor, .mup = true});
        ref::Config r;
        static_cast<ref::Shape&>(r) = oracle_shape(m);
        r.channels = 3, r.compress_kernel = 3, r.embed_kernel = 4, r.gate_hidden = 5;
        r = ref::with_variant(r, GetParam());
        r.gate = gate == std::string("linear") ? ref::Gate::linear : ref::Gate::two_layer;
        r.value = value == std::string("sigmoid")  ? ref::Value::sigmoid
                  : value == std::string("biased") ? ref::Value::biased
                                                   : ref::Value::linear;
        r.compressor_per_sublayer = compressor == std::string("sublayer");
        const auto parameters = oracle_parameters(scrambled_weights(m));
        const auto x = tokens(8, 1);
        EXPECT_EQ(oracle_logits(m, parameters, x, 2, 4), ref::logits(r, parameters, x, 2, 4))
            << compressor << " " << gate << " " << value;
      }
}

class EveryRule : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Model, EveryRule, testing::ValuesIn(rule_names()), rule_test_name);

TEST_P(EveryRule, LossAndEveryGradient) { check({.residual = GetParam()}); }

// All other tests take the oracle's gradients from the tape. Both ways are exact up to the rounding of f64, whose
// epsilon is 2^-29 of f32's; the distance of two such results is twice that at most.
TEST_P(EveryRule, TheOraclesTapeAgreesWithComplexStep) {
  const ModelConfig m = model_config({.residual = GetParam()});
  const auto parameters = oracle_parameters(scrambled_weights(m));
  const auto x = tokens(4, 1), y = tokens(4, 2);
  const Truth truth = oracle_truth(m, parameters, x, y, 1, 4);
  const auto exact =
      ref::loss_gradient(oracle_shape(m), *make_oracle<ref::Complex>(m), parameters, x, y, 1, 4);
  ASSERT_EQ(exact.size(), truth.gradients.size());
  for (const auto& [name, expected] : exact) {
    if (vanishes(m, name)) continue;
    EXPECT_LT(rounding_ratio(truth.gradients.at(name), expected, truth.roundings),
              2 * 0x1p-29 * amplification(expected, truth.moved.at(name)))
        << name;
  }
  EXPECT_EQ(truth.loss,
            ref::Model<double>(oracle_shape(m), *make_oracle<double>(m), parameters).loss(x, y, 1, 4));
}

TEST_P(EveryRule, EveryValueBranchAndGate) {
  if (!has_option(GetParam(), "model.gate")) return;
  for (const char* value : {"biased", "linear"}) check({.residual = GetParam(), .value = value});
  check({.residual = GetParam(), .gate = "two-layer"});
}

TEST_P(EveryRule, EveryChannelCount) {
  if (!has_option(GetParam(), "model.channels")) return;
  const bool streams = GetParam().starts_with("hc");  // of which there are at least two
  for (Index channels : {streams ? 3 : 1, 2, 4, 8})
    check({.residual = GetParam(), .channels = channels, .B = 1, .T = 3});
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
  const auto some = trainable(model_config(c), {1, 6}, 1, ex);
  const auto x = tokens(6, 1);
  auto y = tokens(6, 2);
  for (Index i = 3; i < 6; ++i) y[i] = -1;
  scramble(*some);
  const double masked = some->loss_and_grad({x.data(), y.data()}, 1, ex);
  const auto shorter = trainable(model_config(c), {1, 3}, 1, ex);
  scramble(*shorter);
  EXPECT_LT(rounding_ratio({masked}, {shorter->loss_and_grad({x.data(), y.data()}, 1, ex)}, 100), 1);
  // A leak would be as large as the gradient itself; rounding, however amplified, is far below.
  for (const Param& p : some->weights().table().list()) {
    if (vanishes(some->config(), p.name)) continue;
    auto difference = tensor(some->gradients(), p);
    const auto expected = tensor(shorter->gradients(), p);
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
  for (const Recompute recompute : {Recompute::kNone, Recompute::kMlp, Recompute::kBlock})
    for (int threads : {1, 2}) {
      m.recompute = recompute;
      const Exec ex{.threads = threads};
      const auto model = trainable(m, {2, 40}, 3, ex);
      scramble(*model);
      const double l = model->loss_and_grad({x.data(), y.data()}, 1, ex);
      if (grads.empty()) {
        grads.assign(model->gradients().begin(), model->gradients().end());
        loss = l;
      }
      EXPECT_EQ(l, loss) << name_of(recompute) << threads;
      EXPECT_TRUE(std::equal(grads.begin(), grads.end(), model->gradients().begin()))
          << name_of(recompute) << " " << threads;
      model->loss_and_grad({x.data(), y.data()}, 1, ex);
      for (const Param& p : model->weights().table().list()) {
        const float *once = grads.data(), *twice = model->gradients().data();
        for (Index i = p.offset; i < p.offset + p.count; ++i)
          if (!(std::abs(twice[i] - 2 * once[i]) <= 1e-3 * std::abs(once[i]) + 1e-6))
            FAIL() << p.name << ": " << twice[i] << " after " << once[i];
      }
    }
}

// The largest relative distance, by root mean square, between two models' gradients of a tensor.
double distance(TrainableModel& model, TrainableModel& truth) {
  double worst = 0;
  // A gradient of a few numbers may nearly cancel by chance: those are compared together.
  std::vector<double> few_differences, few_expected;
  for (const Param& p : truth.weights().table().list()) {
    if (vanishes(truth.config(), p.name)) continue;
    auto difference = tensor(model.gradients(), p);
    const auto expected = tensor(truth.gradients(), p);
    for (std::size_t i = 0; i < expected.size(); ++i) difference[i] -= expected[i];
    if (p.count < 16) {
      few_differences.insert(few_differences.end(), difference.begin(), difference.end());
      few_expected.insert(few_expected.end(), expected.begin(), expected.end());
    } else {
      worst = std::max(worst, rms(difference) / rms(expected));
    }
  }
  return few_expected.empty() ? worst : std::max(worst, rms(few_differences) / rms(few_expected));
}

// On its way through a sublayer a value is rounded to bf16 six times (both operands of two products and their
// results), its gradient twelve times. A rounding is uniform within eps/2 either way, a standard deviation of
// eps / (2 sqrt 3); independent ones add as squares. How much a rounding in one place moves a gradient in
// another depends on the model, so that is measured, in f32: two of the eighteen are the weights', and
// rounding those alone shows a third of the whole (sqrt 2/18). Twice as much for chance.
TEST_P(EveryRule, Bf16IsWithinItsRounding) {
  ModelConfig m = model_config({.residual = GetParam()});
  m.width = 64, m.heads = 2, m.mlp = 0, m.vocab = 50, m.context = 40, m.embedding_std = 0.02;
  const Exec ex{.threads = 2};
  const auto x = tokens(80, 1, 50);
  auto y = tokens(80, 2, 50);
  const auto f32 = trainable(m, {2, 40}, 3, ex);
  const auto rounded = trainable(m, {2, 40}, 3, ex);
  for (float& w : rounded->weights().values()) w = to_float(to_bf16(w));
  rounded->upload(ex);
  m.precision = Precision::kBf16;
  const auto b16 = trainable(m, {2, 40}, 3, ex);
  const double loss32 = f32->loss_and_grad({x.data(), y.data()}, 1, ex);
  const double loss16 = b16->loss_and_grad({x.data(), y.data()}, 1, ex);
  rounded->loss_and_grad({x.data(), y.data()}, 1, ex);
  const double deviation = kBf16Epsilon / (2 * std::sqrt(3.0));
  EXPECT_NEAR(loss16, loss32, 3 * deviation * std::sqrt(6.0 * static_cast<double>(m.sublayers())) * loss32);
  const double bound = 2 * 3 * distance(*rounded, *f32);
  EXPECT_LT(distance(*b16, *f32), bound);

  y[7] = -1;  // mutant: one of eighty tokens left out
  std::fill(f32->gradients().begin(), f32->gradients().end(), 0.0f);
  f32->loss_and_grad({x.data(), y.data()}, 1, ex);
  EXPECT_GT(distance(*b16, *f32), bound);
}

TEST_P(EveryRule, PlanSaysWhatIsTaken) {
  const ModelConfig m = model_config({.residual = GetParam()});
  const ModelPlan plan = plan_model(m, {2, 5});
  const auto model = trainable(m, {2, 5}, 1, default_exec());
  std::size_t taken = 0;  // apart from the optimizer
  for (const Arena::Entry& entry : model->memory())
    if (!entry.name.starts_with("optimizer")) taken += entry.bytes;
  EXPECT_EQ(plan.total_bytes, taken);
  EXPECT_EQ(plan.table.parameter_count(), model->weights().table().parameter_count());
}

// A control differs from its twin in the update alone.
TEST(Controls, ShareParametersAndStartingValuesWithTheirTwin) {
  for (const auto& [delta, control] :
       {std::pair{"ddl-dv1", "wo-dv1"}, {"ddl-tc", "wo-tc"}, {"ddl-cc", "wo-cc"}}) {
    const auto a = trainable(model_config({.residual = delta}), {1, 4}, 5, Exec{});
    const auto b = trainable(model_config({.residual = control}), {1, 4}, 5, Exec{});
    ASSERT_EQ(a->weights().table().list().size(), b->weights().table().list().size());
    EXPECT_TRUE(std::equal(a->weights().values().begin(), a->weights().values().end(),
                           b->weights().values().begin(), b->weights().values().end()));
    const auto x = tokens(4, 1), y = tokens(4, 2);
    EXPECT_NE(a->loss({x.data(), y.data()}, {}, Exec{}), b->loss({x.data(), y.data()}, {}, Exec{}));
  }
}

TEST(Presets, HaveThePapersSizes) {
  const auto millions = [](const char* name) {
    ModelConfig c = preset(name);
    c.use_residual("baseline");
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
    try {
      change(m);
      trainable(m, shape);
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
  EXPECT_NE(error([](auto& m) { m.use_residual("ddl-xx"); }).find("nearest"), std::string::npos);
  EXPECT_NE(error([](auto& m) { m.context = 1 << 20; }, {1 << 12, 1 << 20}).find("the machine has"),
            std::string::npos);
}

}  // namespace
}  // namespace ddl
