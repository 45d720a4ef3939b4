// The optimizer of parameters that live elsewhere, here on the CPU, beside the project's own.
#include "torch/device_optimizer.h"

#include <gtest/gtest.h>

#include "core/rng.h"

namespace ddl {
namespace {

const Exec kOneCore{.threads = 1};

ModelConfig small_config() {
  ModelConfig m;
  m.layers = 1, m.width = 16, m.heads = 2, m.vocab = 31, m.context = 8, m.mup = true, m.base_width = 64;
  m.precision = "f32";
  return m;
}

struct Side {
  Weights weights;
  Arena arena = Arena::measuring();
  std::unique_ptr<Optimizer> optimizer;
  explicit Side(const OptimizerConfig& config) : weights(small_config(), 1, kOneCore) {
    Arena measured = Arena::measuring();
    const double factor = weights.config().hidden_lr_factor();
    make_optimizer(weights.table(), factor, config, measured);
    arena = Arena::owning(measured.used_bytes());
    optimizer = make_optimizer(weights.table(), factor, config, arena);
    optimizer->start_average(weights.values(), kOneCore);
  }
};

double largest_difference(std::span<const float> a, std::span<const float> b) {
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    worst = std::max(worst, std::abs(double{a[i]} - double{b[i]}) / std::max(1e-3, std::abs(double{b[i]})));
  return worst;
}

void check_updates(const OptimizerConfig& config) {
  Side own(config), other(config);
  FlatParameters parameters(other.weights, at::Device(at::kCPU));
  DeviceOptimizer device(other.weights, config, *other.optimizer, parameters);
  std::vector<float> gradients(own.weights.values().size());
  auto* torch_gradients = static_cast<float*>(parameters.gradients().data_ptr());
  for (int step = 0; step < 6; ++step) {
    const Random random(static_cast<std::uint64_t>(step), "gradients");
    for (const Param& p : own.weights.table().list())
      for (Index i = p.offset; i < p.offset + p.count; ++i)
        gradients[i] = torch_gradients[i] =
            static_cast<float>(0.1 * random.normal(static_cast<std::uint64_t>(i)));
    const auto expected = own.optimizer->step(own.weights.values(), gradients, nullptr, 1e-2, kOneCore);
    const auto actual = device.step(other.weights, 1e-2, kOneCore);
    EXPECT_TRUE(actual.applied);
    EXPECT_NEAR(actual.grad_norm, expected.grad_norm, 1e-6 * expected.grad_norm);
    EXPECT_EQ(parameters.gradients().abs().max().item<float>(), 0);
  }
  device.download();
  EXPECT_EQ(other.optimizer->updates(), 6);
  EXPECT_LT(largest_difference(other.weights.values(), own.weights.values()), 1e-5);
  const auto expected = own.optimizer->state(), actual = other.optimizer->state();
  for (std::size_t k = 0; k < expected.size(); ++k)
    EXPECT_LT(largest_difference({actual[k].data, static_cast<std::size_t>(actual[k].floats)},
                                 {expected[k].data, static_cast<std::size_t>(expected[k].floats)}),
              1e-5)
        << expected[k].name;
  if (own.optimizer->average())
    EXPECT_LT(largest_difference({other.optimizer->average(), own.weights.values().size()},
                                 {own.optimizer->average(), own.weights.values().size()}),
              1e-5);

  // Not finite: nothing changes but the gradients.
  const std::vector<float> before(other.weights.values().begin(), other.weights.values().end());
  torch_gradients[0] = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(device.step(other.weights, 1e-2, kOneCore).applied);
  EXPECT_EQ(parameters.gradients().abs().max().item<float>(), 0);
  EXPECT_TRUE(std::equal(before.begin(), before.end(), other.weights.values().begin()));
}

TEST(DeviceOptimizer, AdamW) { check_updates({}); }
TEST(DeviceOptimizer, AdamWWithDecayClippingAndAverage) {
  OptimizerConfig config;
  config.weight_decay = 0.1, config.clip = 0.5, config.average = 0.99, config.decay = "all-but-norms";
  check_updates(config);
}
TEST(DeviceOptimizer, MuonRunsOnTheHost) {
  OptimizerConfig config;
  config.choose("muon");
  check_updates(config);
}

}  // namespace
}  // namespace ddl
