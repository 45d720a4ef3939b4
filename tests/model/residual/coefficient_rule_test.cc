// A rule as a description: the write X_d += a_d k with a learned number a_d per channel and k = h / |h|, built
// on the fused pass. What its author writes is the coefficients, the description and the oracle; training,
// decoding, memory and costs are inherited.
#include <gtest/gtest.h>

#include "model/oracle_model.h"
#include "model/plan.h"
#include "model/residual/fused_rule.h"

namespace ddl {
namespace {

constexpr float kGuard = 1e-5f;
constexpr Index kToyChannels = 3;

// coef_d = a_d s,  s = 1 / sqrt(|h|^2 + guard^2).  Backward, with A_d = h . G_d:
//   dsteer_d = A_d s      along = -2 sum_d A_d a_d ds / d|h|^2 = s^3 sum_d A_d a_d      erase_d = 0
class AlongDirection final : public Coefficients {
 public:
  explicit AlongDirection(float fault) : fault_(fault) {}
  bool reads_h_norm() const override { return true; }
  Index saved_per_token(Index) const override { return 1; }
  void forward(const Forward& t) const override {
    const float s = t.saved[0] = 1 / std::sqrt(t.h_square + kGuard * kGuard);
    for (Index d = 0; d < t.D; ++d) t.coef_D[d] = t.steer[d] * s;
  }
  void backward(Backward& t) const override {
    const float s = t.saved[0];
    t.along = 0;
    for (Index d = 0; d < t.D; ++d) {
      t.coef_D[d] = t.steer[d] * s;
      t.erase_D[d] = 0;
      t.dsteer[d] = fault_ * t.h_dot_G_D[d] * s;
      t.along += s * s * s * t.h_dot_G_D[d] * t.steer[d];
    }
  }

 private:
  const float fault_;  // multiplies dsteer; 1: none
};

template <class Num>
class AlongDirectionOracle final : public ref::Rule<Num> {
 public:
  explicit AlongDirectionOracle(const ModelConfig& config) : C_(config.width), layers_(config.layers) {}

  void add_counts(std::map<std::string, Index>& counts) const override {
    counts["readout.weight"] = kToyChannels * C_;
    for (Index i = 0; i < layers_; ++i)
      for (const char* kind : {"attn", "mlp"}) {
        counts[fmt::format("transformer.h.{}.compress_{}.weight", i, kind)] = kToyChannels * C_;
        counts[fmt::format("transformer.h.{}.ddl_{}.amount.bias", i, kind)] = kToyChannels;
      }
  }
  ref::Vec<Num> start(const ref::Vec<Num>& x_NC, const ref::Parameters<Num>&, Index B,
                      Index T) const override {
    return ref::repeat_channels(x_NC, B * T, kToyChannels, C_);
  }
  ref::Vec<Num> read(const ref::Vec<Num>& state_NDC, const ref::Place& place, const ref::Parameters<Num>& w,
                     Index B, Index T) const override {
    const std::string name = place.block.empty() ? "readout" : place.block + "compress_" + place.kind;
    return ref::channel_compress(state_NDC, ref::find_parameter(w, name + ".weight"), B * T, kToyChannels,
                                 C_);
  }
  ref::Vec<Num> write(const ref::Vec<Num>& state_NDC, ref::SublayerTrace<Num>& sublayer,
                      const ref::Place& place, const ref::Parameters<Num>& w, Index N) const override {
    const auto& a_D = ref::find_parameter(w, place.block + "ddl_" + place.kind + ".amount.bias");
    const ref::Vec<Num> k_NC = ref::direction(sublayer.h_NC, N, C_, double{kGuard}, false);
    ref::Vec<Num> next_NDC = state_NDC;
    for (Index n = 0; n < N; ++n)
      for (Index d = 0; d < kToyChannels; ++d)
        for (Index i = 0; i < C_; ++i) next_NDC[(n * kToyChannels + d) * C_ + i] += a_D[d] * k_NC[n * C_ + i];
    return next_NDC;
  }

 private:
  const Index C_, layers_;
};

// The toy rule in a small model; `fault` other than 1 makes a mutant.
ModelConfig toy(float fault = 1) {
  const std::string name = fault == 1 ? "toy-along" : "toy-along-mutant";
  register_rule(with_oracle<AlongDirectionOracle>(fused_rule(
      name, "a learned amount along the direction", OptionSetPtr(NoOptions()), [fault](const ModelConfig&) {
        return FusedSpec{.expand = Expand::kRepeat,
                         .read = Read::kChannel,
                         .channels = kToyChannels,
                         .write = std::make_shared<AlongDirection>(fault),
                         .branches = {{.name = "amount",
                                       .rows = kToyChannels,
                                       .input = BranchInput::kNone,
                                       .bias = Init::constant(0.5)}},
                         .series = {{.name = "amount", .count = kToyChannels}}};
      })));
  return model_config({.residual = name});
}

TEST(CoefficientRule, LossAndEveryGradientAreTheOracles) {
  for (const BatchShape shape : {BatchShape{2, 4}, {1, 16}, {3, 2}}) EXPECT_LT(worst_error(toy(), shape), 1);
}

TEST(CoefficientRule, AWrongDsteerIsRejected) { EXPECT_GT(worst_error(toy(1.001f)), 1); }

TEST(CoefficientRule, DecodesAsAFullForwardPass) {
  for (const Index step : {1, 3, 16}) EXPECT_LT(worst_decoding_error(toy(), 16, step), 1) << step;
}

TEST(CoefficientRule, InheritsTheRest) {
  ModelConfig m = toy();
  const ModelPlan plan = plan_model(m, {2, 4});
  EXPECT_EQ(plan.cache_bytes_per_sequence, 0) << "it looks at no other token";
  EXPECT_GT(plan.forward.residual, 0);
  m.precision = Precision::kBf16;
  const auto x = tokens(8, 1), y = tokens(8, 2);
  const auto b16 = trainable(m, {2, 4});
  m.precision = Precision::kF32;
  const auto f32 = trainable(m, {2, 4});
  const double loss = f32->loss_and_grad({x.data(), y.data()}, 1, Exec{});
  EXPECT_NEAR(b16->loss_and_grad({x.data(), y.data()}, 1, Exec{}), loss, 0.05 * loss);
  // The series is what the branch gave to every token.
  const auto series = f32->series(1);
  ASSERT_EQ(series.size(), 1u);
  EXPECT_EQ(series[0].per_token, kToyChannels);
  for (Index n = 0; n < 8; ++n)
    for (Index d = 0; d < kToyChannels; ++d) EXPECT_EQ(series[0].values[n * series[0].stride + d], 0.5f);
}

}  // namespace
}  // namespace ddl
