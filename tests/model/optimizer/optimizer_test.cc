// What all optimizers have in common, and AdamW against its definition in f64 and against its kernel.
#include "model/optimizer/optimizer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "bench.h"
#include "kernels/adamw.h"
#include "model/optimizer/adamw.h"
#include "model/optimizer/muon.h"
#include "test_folder.h"

namespace ddl {
namespace {

OptimizerConfig config_of(const std::string& name) {
  OptimizerConfig config;
  config.choose(name);
  return config;
}

TEST(Optimizer, MatchesTheDefinitionPerTensor) {
  for (const bool mup : {false, true}) {
    ModelConfig m = optimizer_test_model();
    m.mup = mup, m.base_width = 64;
    OptimizerConfig c;
    c.weight_decay = 0.3, c.clip = 0.5;
    const double eps = c.own.as<AdamWOptions>().eps;
    OptimizerBench b(m, c);
    const std::vector<float> before = b.params;
    b.fill_grads(0.1);
    const std::vector<float> g = b.grads;
    const double norm = b.norm(), lr = 0.01;
    ASSERT_GT(norm, c.clip);
    const auto update = b.step(lr);
    EXPECT_TRUE(update.applied);
    EXPECT_NEAR(update.grad_norm, norm, 1e-5 * norm);
    Index decayed = 0, plain = 0, hidden = 0;
    for (const Param& p : b.table.list()) {
      const bool matrix = p.name.find("c_") != std::string::npos;  // attention and MLP weights
      EXPECT_TRUE(!matrix || (p.decays && p.hidden_matrix)) << p.name;
      const double rate = lr * (mup && p.hidden_matrix ? 4.0 : 1.0);
      for (Index i = p.offset; i < p.offset + p.count; ++i) {
        const double clipped = static_cast<double>(g[i]) * c.clip / norm;
        // The first step: both bias corrections undo the decay, so the move is lr g / (|g| + eps).
        const double expected =
            static_cast<double>(before[i]) * (1 - (p.decays ? rate * c.weight_decay : 0)) -
            rate * clipped / (std::abs(clipped) + eps);
        ASSERT_NEAR(b.params[i], expected, 2e-6) << p.name << " " << i;
      }
      decayed += p.decays, plain += !p.decays, hidden += p.hidden_matrix;
    }
    EXPECT_GT(decayed, 0);
    EXPECT_GT(plain, 0);
    EXPECT_GT(hidden, 0);
  }
}

// Tensor by tensor, the kernel gives the same bits as the optimizer, which takes neighbours together.
TEST(Optimizer, AdamWIsItsKernelBitForBit) {
  ModelConfig m = optimizer_test_model();
  m.mup = true, m.base_width = 64;
  const OptimizerConfig c;
  OptimizerBench b(m, c);
  std::vector<float> p = b.params, mean(p.size()), square(p.size());
  std::vector<bf16> copy(p.size());
  for (Index step = 1; step <= 3; ++step) {
    b.fill_grads(0.5, static_cast<std::uint64_t>(step));
    std::vector<float> g = b.grads;
    const double norm = std::sqrt(sum_of_squares(g.data(), std::ssize(g), Exec{}));
    for (const Param& t : b.table.list()) {
      AdamW o{.lr = 0.01 * (t.hidden_matrix ? 4.0 : 1.0),
              .weight_decay = t.decays ? c.weight_decay : 0,
              .grad_scale = c.clip / norm,
              .step = step};
      const Index at = t.offset;
      adamw_step(&p[at], &mean[at], &square[at], &copy[at], &g[at], true, o, t.count, Exec{});
    }
    EXPECT_EQ(b.step(0.01).grad_norm, norm);
    EXPECT_EQ(b.params, p);
    for (const Param& t : b.table.list())
      EXPECT_TRUE(std::equal(&copy[t.offset], &copy[t.offset] + t.count, &b.copy[t.offset])) << t.name;
    EXPECT_EQ(std::memcmp(b.state("exp_avg"), mean.data(), mean.size() * sizeof(float)), 0);
    EXPECT_EQ(std::memcmp(b.state("exp_avg_sq"), square.data(), square.size() * sizeof(float)), 0);
  }
}

TEST(Optimizer, DoesNotClipBelowTheLimitOrWithoutOne) {
  for (const double clip : {0.0, 1e6}) {
    OptimizerConfig c;
    c.clip = clip;
    OptimizerBench b(optimizer_test_model(), c);
    b.fill_grads(10);
    const float g0 = b.grads[0];
    b.step(0.01);
    EXPECT_FLOAT_EQ(b.state("exp_avg")[0], static_cast<float>(0.1 * static_cast<double>(g0)));
  }
}

class EveryOptimizer : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, EveryOptimizer, testing::ValuesIn(optimizer_names()),
                         [](const auto& test) { return test.param; });

std::vector<float> all_state(const Optimizer& optimizer) {
  std::vector<float> values;
  for (const NamedArray& array : optimizer.state())
    values.insert(values.end(), array.data, array.data + array.floats);
  return values;
}

TEST_P(EveryOptimizer, SkipsWhatIsNotFinite) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    OptimizerBench b(optimizer_test_model(), config_of(GetParam()));
    b.fill_grads(1);
    EXPECT_TRUE(b.step(0.01).applied);
    const std::vector<float> before = b.params, state = all_state(*b.optimizer);
    b.fill_grads(1);
    b.grads[5] = bad;
    EXPECT_FALSE(b.step(0.01).applied);
    EXPECT_EQ(b.optimizer->updates(), 1);
    EXPECT_EQ(all_state(*b.optimizer), state);
    EXPECT_EQ(b.params, before);
    for (const float left : b.grads) ASSERT_EQ(left, 0);
  }
}

// Every parameter moves, its copy follows it, its gradient is zero, and gaps stay zero.
TEST_P(EveryOptimizer, UpdatesEveryTensorAndNothingElse) {
  OptimizerBench b(optimizer_test_model(), config_of(GetParam()));
  const std::vector<float> before = b.params;
  b.fill_grads(1);
  b.step(0.01);
  std::vector<bool> gap(b.params.size(), true);
  for (const Param& p : b.table.list())
    for (Index i = p.offset; i < p.offset + p.count; ++i) {
      ASSERT_NE(b.params[i], before[i]) << p.name << " " << i - p.offset;
      ASSERT_EQ(b.copy[i], to_bf16(b.params[i])) << p.name;
      gap[i] = false;
    }
  for (std::size_t i = 0; i < gap.size(); ++i) {
    ASSERT_TRUE(!gap[i] || b.params[i] == 0);
    ASSERT_EQ(b.grads[i], 0);
  }
}

TEST_P(EveryOptimizer, BitsDoNotDependOnTheThreads) {
  std::vector<std::vector<float>> results;
  for (const int threads : {1, 2, 3}) {
    OptimizerBench b(optimizer_test_model(), config_of(GetParam()));
    for (std::uint64_t step = 1; step <= 3; ++step) b.fill_grads(0.1, step), b.step(0.01, Exec{threads});
    results.push_back(b.params);
  }
  EXPECT_EQ(results[1], results[0]);
  EXPECT_EQ(results[2], results[0]);
}

// A tensor has its state in each array that applies to it, and only there; what is planned is what is taken.
TEST_P(EveryOptimizer, StateCoversEveryTensorAndIsPlannedBefore) {
  for (const double average : {0.0, 0.9}) {
    OptimizerConfig c = config_of(GetParam());
    c.average = average;
    OptimizerBench b(optimizer_test_model(), c);
    Arena measure = Arena::measuring();
    const auto planned = make_optimizer(b.table, 1, c, measure);
    EXPECT_EQ(planned->state_floats(), b.optimizer->state_floats());
    EXPECT_EQ(measure.used_bytes(), b.arena.used_bytes());
    std::vector<int> covered(b.table.list().size());
    Index floats = average > 0 ? b.table.floats() : 0;
    for (const NamedArray& array : b.optimizer->state()) {
      Index end = 0;
      for (const NamedArray::Tensor& t : array.tensors) {
        EXPECT_GE(t.offset, end);
        EXPECT_LT(t.offset - end, 16);
        end = t.offset + b.table.list()[t.param].count;
        ++covered[t.param];
      }
      EXPECT_EQ(end, array.floats);
      floats += array.floats;
    }
    EXPECT_EQ(b.optimizer->state_floats(), floats);
    for (const int times : covered) EXPECT_GT(times, 0);
    EXPECT_EQ(b.optimizer->average() != nullptr, average > 0);
  }
}

TEST(Optimizer, AverageFollowsAndSwaps) {
  OptimizerConfig c;
  c.average = 0.2;  // below the early limit of 2/11 = 0.18 only from the second update on
  OptimizerBench b(optimizer_test_model(), c);
  const float start = b.params[0];
  b.fill_grads(1);
  b.step(0.1);
  const float moved = b.params[0];
  const double keep = 2.0 / 11;
  EXPECT_NEAR(b.optimizer->average()[0], moved + keep * (start - moved), 1e-6);
  const float average = b.optimizer->average()[0];
  b.optimizer->swap_average(b.params, Exec{});
  EXPECT_EQ(b.params[0], average);
  b.optimizer->swap_average(b.params, Exec{});
  EXPECT_EQ(b.params[0], moved);
}

TEST(OptimizerConfig, ListsTheChosenOnesOptionsAndRefusesOthers) {
  OptimizerConfig c;
  Options adamw;
  c.describe(adamw);
  EXPECT_EQ(message_of<UserError>([&] { adamw.set("train.momentum=0.9"); }),
            "--set train.momentum=0.9: train.momentum is an option of train.optimizer = muon; adamw has "
            "train.beta1, train.beta2, train.eps");
  EXPECT_TRUE(contains(message_of<UserError>([&] { c.choose("muom"); }), "nearest: muon"));

  OptimizerConfig m = config_of("muon");
  Options muon;
  m.describe(muon);
  muon.load_text("[train]\nmomentum = 0.5\nbeta2 = 0.75\nclip = 2\n", "run.toml");
  const OptimizerConfig copied = m;  // a copy has options of its own
  muon.set("train.momentum=0.25");
  EXPECT_EQ(copied.own.as<MuonOptions>().momentum, 0.5);
  EXPECT_EQ(copied.own.as<MuonOptions>().rest.beta2, 0.75);
  EXPECT_EQ(copied.clip, 2);
  EXPECT_EQ(m.own.as<MuonOptions>().momentum, 0.25);
}

}  // namespace
}  // namespace ddl
