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
  m.precision = Precision::kF32;
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

// |a - b| / |b|
double difference(std::span<const float> a, std::span<const float> b) {
  double squares = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    squares += std::pow(double{a[i]} - double{b[i]}, 2), size += double{b[i]} * double{b[i]};
  return std::sqrt(squares / size);
}
constexpr double kTolerance = 1e-6;

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
  const double weights = difference(other.weights.values(), own.weights.values());
  EXPECT_LT(weights, kTolerance);
  std::printf("%s: weights %.1e", config.name.c_str(), weights);
  const auto expected = own.optimizer->state(), actual = other.optimizer->state();
  for (std::size_t k = 0; k < expected.size(); ++k) {
    const double state = difference({actual[k].data, static_cast<std::size_t>(actual[k].floats)},
                                    {expected[k].data, static_cast<std::size_t>(expected[k].floats)});
    EXPECT_LT(state, kTolerance) << expected[k].name;
    std::printf(", %s %.1e", expected[k].name.c_str(), state);
  }
  if (own.optimizer->average()) {
    const double average = difference({other.optimizer->average(), own.weights.values().size()},
                                      {own.optimizer->average(), own.weights.values().size()});
    EXPECT_LT(average, kTolerance);
    std::printf(", average %.1e", average);
  }
  std::printf("\n");

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
  config.weight_decay = 0.1, config.clip = 0.5, config.average = 0.99, config.decay = Decays::kAllButNorms;
  check_updates(config);
}
TEST(DeviceOptimizer, Muon) {
  OptimizerConfig config;
  config.choose("muon");
  check_updates(config);
  config.weight_decay = 0.1, config.clip = 0.5, config.average = 0.99;
  check_updates(config);
}
// One that nobody has written for devices, though its options are AdamW's.
TEST(DeviceOptimizer, AnotherRunsOnTheHost) {
  OptimizerEntry entry = find_optimizer("adamw");
  entry.name = "own";
  entry.make = [](const ParamTable& table, double hidden_lr_factor, const OptimizerConfig& config,
                  Arena& arena) {
    OptimizerConfig other = config;
    other.own.as<AdamWOptions>().beta1 = 0.5;
    return find_optimizer("adamw").make(table, hidden_lr_factor, other, arena);
  };
  register_optimizer(entry);
  OptimizerConfig config;
  config.choose("own");
  check_updates(config);
}

}  // namespace
}  // namespace ddl
