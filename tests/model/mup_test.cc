// The coordinate check of mup: with hidden learning rates and logits scaled by base / width, neither the
// scale of what flows through the network nor the effect of one update of its hidden matrices may drift with
// the width. (The logits at the start are not held: a random head shrinks them like 1 / sqrt(width), as mup
// means it to.)
#include <gtest/gtest.h>

#include <cmath>

#include "core/rng.h"
#include "kernels/adamw.h"
#include "model/engine.h"
#include "model/residual/wrapped_rule.h"

namespace ddl {
namespace {

// Records the rms of every sublayer's output.
class RecordingRule : public WrappedRule {
 public:
  RecordingRule(std::unique_ptr<ResidualRule<float>> inner, Index C, std::vector<double>& output_rms)
      : WrappedRule(std::move(inner)), C_(C), output_rms_(output_rms) {}
  void write_and_read(Index s, float* next_context_NC, const float* h_NC, const Tokens& tokens,
                      const Exec& ex) override {
    const Index size = tokens.count * C_;
    double squares = 0;
    for (Index i = 0; i < size; ++i) squares += double{h_NC[i]} * h_NC[i];
    output_rms_.push_back(std::sqrt(squares / static_cast<double>(size)));
    WrappedRule::write_and_read(s, next_context_NC, h_NC, tokens, ex);
  }

 private:
  const Index C_;
  std::vector<double>& output_rms_;
};

enum class Scaling { kRight, kRatesDoNotScale, kWeightsDoNotScale };

struct Coordinates {
  std::vector<double> output_rms;  // by sublayer
  double effect;  // rms over tokens of the change of the loss by one update of the hidden matrices
};

Coordinates measure(Index width, const std::string& residual, Scaling scaling) {
  std::vector<double> output_rms;
  register_wrapped("recording", residual, [&](auto inner, const ModelConfig& config) {
    return std::make_unique<RecordingRule>(std::move(inner), config.width, output_rms);
  });
  ModelConfig m;
  m.layers = 1, m.width = width, m.heads = width / 64, m.vocab = 64, m.context = 32,
  m.use_residual("recording");
  m.precision = Precision::kF32, m.mup = true, m.base_width = 128;
  if (scaling == Scaling::kWeightsDoNotScale)
    m.hidden_std_factor *= std::sqrt(static_cast<double>(width) / static_cast<double>(m.base_width));
  const Index B = 1, T = 32, N = B * T;
  const Exec ex{.threads = 2};
  const auto model = make_trainable(m, {B, T}, OptimizerConfig{}, 1, ex);
  std::vector<std::int32_t> x(N), y(N);
  const Random random(1, "mup");
  for (Index n = 0; n < N; ++n) {
    x[n] = static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(n), 64));
    y[n] = static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(n + N), 64));
  }
  std::vector<float> before(N), after(N);
  model->loss({x.data(), y.data()}, {before.data(), nullptr}, ex);
  const std::vector<double> at_the_start = output_rms;
  model->loss_and_grad({x.data(), y.data()}, 1, ex);
  for (const Param& p : model->weights().table().list()) {
    if (!p.hidden_matrix) continue;
    std::vector<float> first(p.count), second(p.count);
    AdamW adam;
    const double ratio = static_cast<double>(m.base_width) / static_cast<double>(width);
    adam.lr = 1e-5 * (scaling == Scaling::kRatesDoNotScale ? 1 : ratio);
    // Small enough that the change of the loss is linear in it.
    adamw_step(&model->weights().values()[p.offset], first.data(), second.data(), nullptr,
               &model->gradients()[p.offset], true, adam, p.count, ex);
  }
  model->upload(ex);
  model->loss({x.data(), y.data()}, {after.data(), nullptr}, ex);
  double change = 0;
  for (Index n = 0; n < N; ++n) change += std::pow(after[n] - before[n], 2) / static_cast<double>(N);
  return {at_the_start, std::sqrt(change)};
}

// Widths span a factor of eight. Both are averages over random weights and over at most 32 tokens of which
// many share their past: at the narrowest width a tenth of chance either way. What does not scale drifts by
// sqrt(8) (weights) or more (rates), so a factor of two tells the two apart.
TEST(Mup, ScalesDoNotDriftWithWidth) {
  for (const char* residual : {"baseline", "ddl-dv1", "ddl-cc", "ddl-tc", "wo-cc"}) {
    std::vector<Coordinates> at;
    for (Index width : {64, 128, 256, 512}) {
      at.push_back(measure(width, residual, Scaling::kRight));
      std::printf("%s width %td: outputs %.4f %.4f, effect %.4f\n", residual, width, at.back().output_rms[0],
                  at.back().output_rms[1], at.back().effect);
    }
    for (const Coordinates& a : at)
      for (const Coordinates& b : at) {
        EXPECT_LT(a.effect, 2 * b.effect) << residual;
        for (std::size_t s = 0; s < 2; ++s) EXPECT_LT(a.output_rms[s], 2 * b.output_rms[s]) << residual << s;
      }
  }
}

TEST(Mup, DriftIsSeenWithoutTheScaling) {
  const auto rates = [](Index width) { return measure(width, "ddl-cc", Scaling::kRatesDoNotScale).effect; };
  EXPECT_GT(rates(512), 4 * rates(64));
  const auto weights = [](Index width) {
    return measure(width, "ddl-cc", Scaling::kWeightsDoNotScale).output_rms[1];
  };
  EXPECT_GT(weights(512), 2 * weights(64));
}

// As long as in the paper's small model, whose deviation at width 768 is 0.02; the paper's deviation above that; the base
// width's with muP, under which nothing may change with the width.
TEST(Embedding, NarrowOnesAreAsLongAsThePapers) {
  const auto drawn = [](Index width, bool mup, Index base_width, double asked) {
    ModelConfig m = model_config({});
    m.width = width, m.heads = 1, m.vocab = 4000, m.mup = mup, m.base_width = base_width;
    m.embedding_std = asked;
    const auto model = trainable(m, {1, 2});
    const auto table = param_table(m);
    const Param& p = table.list().front();
    EXPECT_EQ(p.name, "transformer.wte.weight");
    double squares = 0;
    for (const float v : model->weights().values().subspan(static_cast<std::size_t>(p.offset),
                                                           static_cast<std::size_t>(p.count)))
      squares += double{v} * v;
    return std::sqrt(squares / static_cast<double>(p.count));
  };
  EXPECT_NEAR(drawn(48, false, 1024, 0), 0.08, 0.001);
  EXPECT_NEAR(drawn(768, false, 1024, 0), 0.02, 0.0002);
  EXPECT_NEAR(drawn(1024, false, 1024, 0), 0.02, 0.0002);
  EXPECT_NEAR(drawn(48, true, 1024, 0), 0.02, 0.0002);
  EXPECT_NEAR(drawn(96, true, 48, 0), 0.08, 0.001);
  EXPECT_NEAR(drawn(48, false, 1024, 0.5), 0.5, 0.005);
}

}  // namespace
}  // namespace ddl
