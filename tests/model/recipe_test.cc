// The choices in which the paper's authors and this project differ: each against the oracle, and each seen to
// change something.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/arena.h"
#include "core/exec.h"
#include "model/config.h"
#include "model/engine.h"
#include "model/optimizer/optimizer.h"
#include "model/oracle_model.h"
#include "model/params.h"
#include "model/residual/channel_conv.h"
#include "model/residual/registry.h"
#include "model/weights.h"

namespace ddl {
namespace {

ModelConfig with(const std::string& rule, const std::vector<std::string>& sets, Index channels = 3) {
  ModelConfig m = model_config({.residual = rule, .channels = channels});
  for (const std::string& set : sets) m.set(set);
  return m;
}

std::vector<float> decoded_logits(const Weights& weights) {
  const auto decoder = make_decoder(weights, {}, Exec{});
  const auto x = tokens(9, 1);
  std::vector<float> all;
  const Decoder::Append a{0, x};
  decoder->append_visiting(
      {&a, 1}, [&](Index, Index, std::span<const float> z) { all.insert(all.end(), z.begin(), z.end()); },
      Exec{});
  return all;
}

class EveryRuleRecipe : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Recipe, EveryRuleRecipe, testing::ValuesIn(rule_names()), rule_test_name);

TEST_P(EveryRuleRecipe, RotaryBaseAndNormEpsAreTheModels) {
  const ModelConfig plain = with(GetParam(), {}),
                    other = with(GetParam(), {"model.rope_base=30", "model.norm_eps=0.2"});
  EXPECT_LT(worst_error(other), 1);
  for (Index step : {1, 4}) EXPECT_LT(worst_decoding_error(other, 9, step), 1);
  // Each of the two is seen: the same weights give other logits.
  const Weights weights = scrambled_weights(plain);
  const auto logits_with = [&](const char* set) {
    Weights changed(with(GetParam(), {set}));
    std::copy(weights.values().begin(), weights.values().end(), changed.values().begin());
    return decoded_logits(changed);
  };
  EXPECT_NE(logits_with("model.rope_base=30"), decoded_logits(weights));
  EXPECT_NE(logits_with("model.norm_eps=0.2"), decoded_logits(weights));
}

// train.decay has to know them.
TEST_P(EveryRuleRecipe, NormsAreMarked) {
  Index norms = 0;
  for (const ParamTable table = param_table(with(GetParam(), {})); const Param& p : table.list()) {
    const bool norm = p.name.find(".ln_") != p.name.npos || p.name.starts_with("ln_f") ||
                      p.name.ends_with("_rms.weight") || p.name.ends_with("norm.weight");
    EXPECT_TRUE(p.norm || !norm) << p.name;
    EXPECT_FALSE(p.norm && (p.decays || p.shape.size() > 1)) << p.name;
    norms += norm;
  }
  EXPECT_GE(norms, 2 * 4 + 1);
}

class ChannelConvolution : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Recipe, ChannelConvolution, testing::Values("ddl-cc", "ddl-cc-noec", "wo-cc"),
                         rule_test_name);

TEST_P(ChannelConvolution, LossEveryGradientAndDecoding) {
  for (const char* compressor : {"model.compressor=block", "model.compressor=sublayer"})
    for (const auto& [channels, taps] : {std::pair<Index, Index>{3, 0}, {4, 0}, {4, 2}, {3, 1}, {2, 5}}) {
      const ModelConfig m = with(
          GetParam(),
          {compressor, "model.channel_compressor=convolution", fmt::format("model.channel_kernel={}", taps)},
          channels);
      EXPECT_LT(worst_error(m), 1) << compressor << channels << taps;
      if (channels == 4) {
        EXPECT_LT(worst_decoding_error(m, 7, 3), 1) << compressor << taps;
      }
    }
}

TEST_P(ChannelConvolution, GradientsAddUpAndFollowTheWeights) {
  const ModelConfig m = with(GetParam(), {"model.channel_compressor=convolution"});
  const auto model = trainable(m, {2, 4});
  scramble(*model);
  const auto x = tokens(8, 1), y = tokens(8, 2);
  const BatchView batch{x.data(), y.data()};
  model->loss_and_grad(batch, 1, Exec{});
  const std::vector<float> once(model->gradients().begin(), model->gradients().end());
  model->loss_and_grad(batch, 1, Exec{});
  for (std::size_t i = 0; i < once.size(); ++i)
    ASSERT_NEAR(model->gradients()[i], 2 * once[i], 1e-5 * std::abs(once[i]) + 1e-6) << i;
  // A change of the read vector alone reaches the next pass.
  const double before = model->loss(batch, {}, Exec{});
  for (float& r : model->weights().tensor("readout.read")) r *= 1.5f;
  model->upload(Exec{});
  EXPECT_NE(model->loss(batch, {}, Exec{}), before);
}

// A model of weights that are the folded ones is the same model, bit for bit, and its gradients unfold. This
// holds for one channel too, where the norm undoes the scale of `read`, whose gradient is then too small to be held
// to the oracle.
TEST_P(ChannelConvolution, IsTheModelOfItsFoldedWeights) {
  for (const auto& [D, taps] : {std::pair<Index, Index>{1, 0}, {4, 0}, {4, 2}, {3, 5}}) {
    const Index C = 8, E = taps > 0 ? taps : D;
    const ModelConfig weights = with(GetParam(), {}, D),
                      convolution = with(GetParam(),
                                         {"model.channel_compressor=convolution",
                                          fmt::format("model.channel_kernel={}", taps)},
                                         D);
    const auto a = trainable(weights, {2, 4}), b = trainable(convolution, {2, 4});
    scramble(*b);
    const auto is_compressor = [](const std::string& name) {
      return name.find("compress") != name.npos || name.starts_with("readout");
    };
    for (const Param& p : a->weights().table().list()) {
      const std::span<float> to = a->weights().tensor(p.name), from = b->weights().tensor(p.name);
      if (is_compressor(p.name)) {
        const std::string read = p.name.substr(0, p.name.rfind('.')) + ".read";
        channel_conv_fold(to.data(), from.data(), b->weights().tensor(read).data(), D, C, E);
      } else {
        std::copy(from.begin(), from.end(), to.begin());
      }
    }
    a->upload(Exec{});
    const auto x = tokens(8, 1), y = tokens(8, 2);
    EXPECT_EQ(a->loss_and_grad({x.data(), y.data()}, 1, Exec{}),
              b->loss_and_grad({x.data(), y.data()}, 1, Exec{}));
    const auto gradient = [](TrainableModel& model, const std::string& name) {
      return tensor(model.gradients(), model.weights().table().find(name));
    };
    for (const Param& p : a->weights().table().list()) {
      const std::vector<double> folded = gradient(*a, p.name);
      if (!is_compressor(p.name)) {
        EXPECT_EQ(folded, gradient(*b, p.name)) << p.name;
        continue;
      }
      const std::string base = p.name.substr(0, p.name.rfind('.'));
      const std::span<const float> w = b->weights().tensor(p.name),
                                   read = b->weights().tensor(base + ".read");
      std::vector<double> dw(E * C), dread(D), sizes(D);
      for (Index d = 0; d < D; ++d)
        for (Index j = 0; j < D; ++j) {
          const Index m = d - j + (E - 1) / 2;
          if (m < 0 || m >= E) continue;
          for (Index c = 0; c < C; ++c) {
            dw[m * C + c] += double{read[j]} * folded[d * C + c];
            dread[j] += double{w[m * C + c]} * folded[d * C + c];
            sizes[j] += std::abs(double{w[m * C + c]} * folded[d * C + c]);
          }
        }
      EXPECT_LT(rounding_ratio(gradient(*b, p.name), dw, D), 1) << p.name;
      const std::vector<double> actual = gradient(*b, base + ".read");
      for (Index j = 0; j < D; ++j) EXPECT_NEAR(actual[j], dread[j], 1e-6 * sizes[j]) << p.name << j;
    }
  }
}

// Both forms start as the plain average, so the first loss has the same bits.
TEST_P(ChannelConvolution, StartsAsTheWeightsDo) {
  const ModelConfig weights = with(GetParam(), {}, 4),
                    convolution = with(GetParam(), {"model.channel_compressor=convolution"}, 4);
  const auto a = trainable(weights, {2, 4}, 5), b = trainable(convolution, {2, 4}, 5);
  const auto x = tokens(8, 1), y = tokens(8, 2);
  EXPECT_EQ(a->loss({x.data(), y.data()}, {}, Exec{}), b->loss({x.data(), y.data()}, {}, Exec{}));
}

double deviation(std::span<const float> values) {
  double squares = 0;
  for (const float v : values) squares += double{v} * v;
  return std::sqrt(squares / static_cast<double>(values.size()));
}

// Deviations of 4096 draws or more: within a tenth, which is six times their own.
TEST(Starts, CompressorsAreNormalWhereAskedFor) {
  for (const auto& [rule, set] : {std::pair{"ddl-cc", "model.channel_compressor=weights"},
                                  {"ddl-cc", "model.channel_compressor=convolution"},
                                  {"ddl-tc", "model.state_kernel=4"}}) {
    ModelConfig m = with(rule, {"model.compressor_start=normal", "model.compressor=block", set}, 4);
    m.width = 256, m.heads = 8;
    Weights weights(m, 3, Exec{});
    const std::span<const float> values = weights.tensor("transformer.h.1.compress.weight");
    EXPECT_NEAR(deviation(values) / m.hidden_std(), 1, 0.1) << rule << set;
    if (std::string(set) != "model.channel_compressor=weights") {
      for (const float r : weights.tensor("readout.read")) EXPECT_EQ(r, 0.25f);
    }
    m.set("model.compressor_start=average");
    Weights average(m, 3, Exec{});
    for (const float w : average.tensor("readout.weight")) EXPECT_TRUE(w == 0 || w == 0.25f || w == 1) << w;
  }
}

TEST(Starts, ValueBiasesAreUniformWhereAskedFor) {
  ModelConfig m = with("ddl-cc", {}, 16);
  m.width = 64, m.heads = 4, m.layers = 40;
  const auto biases = [&] {
    Weights weights(m, 3, Exec{});
    std::vector<float> all;
    for (const Param& p : weights.table().list())
      if (p.name.ends_with("v_proj.bias"))
        all.insert(all.end(), weights.values().begin() + p.offset,
                   weights.values().begin() + p.offset + p.count);
    return all;
  };
  for (const float b : biases()) EXPECT_EQ(b, 0);
  m.set("model.value_bias_start=uniform");
  const std::vector<float> uniform = biases();  // 1280 of them
  const double bound = 1 / std::sqrt(64.0);
  for (const float b : uniform) EXPECT_LE(std::abs(b), bound);
  EXPECT_NEAR(deviation(uniform) / bound * std::sqrt(3.0), 1, 0.1);
  EXPECT_LT(*std::min_element(uniform.begin(), uniform.end()), -0.9 * bound);
  EXPECT_GT(*std::max_element(uniform.begin(), uniform.end()), 0.9 * bound);
}

// One step of AdamW from parameters of one: without gradients what decays, with equal ones the rate of each.
struct Stepped {
  std::map<std::string, double> shrunk, moved;
};
Stepped step_of(const OptimizerConfig& config, const ParamTable& table, double factor) {
  Stepped out;
  for (const bool gradients : {false, true}) {
    OptimizerConfig c = config;
    c.clip = 0;
    if (gradients) c.weight_decay = 0;
    std::vector<float> params(static_cast<std::size_t>(table.floats()), 1.0f),
        grads(params.size(), gradients ? 1.0f : 0.0f);
    Arena measured = Arena::measuring();
    make_optimizer(table, factor, c, measured);
    Arena arena = Arena::owning(measured.used_bytes());
    make_optimizer(table, factor, c, arena)->step(params, grads, nullptr, 0.01, Exec{});
    for (const Param& p : table.list())
      (gradients ? out.moved : out.shrunk)[p.name] =
          (1 - double{params[static_cast<std::size_t>(p.offset)]}) / 0.01;
  }
  return out;
}

TEST(Recipe, WhatDecaysAndWhoseRatesScale) {
  const ParamTable table = param_table(with("ddl-cc", {"model.channel_compressor=convolution"}));
  OptimizerConfig ours, theirs;
  theirs.decay = Decays::kAllButNorms, theirs.mup_rates = MupRates::kAllButEmbedding;
  const Stepped a = step_of(ours, table, 4), b = step_of(theirs, table, 4);
  Index norms = 0;
  for (const Param& p : table.list()) {
    const bool norm = p.name.ends_with("ln_1.weight") || p.name.ends_with("ln_2.weight") ||
                      p.name.ends_with("_rms.weight") || p.name == "ln_f.weight";
    const bool embedding = p.name == "transformer.wte.weight";
    const bool matrix = p.name.find("c_") != p.name.npos || p.name.ends_with("beta.weight") ||
                        p.name.ends_with("v_proj.weight");
    norms += norm;
    const double our_rate = matrix ? 4 : 1, their_rate = embedding ? 1 : 4;
    EXPECT_NEAR(a.moved.at(p.name), our_rate, 1e-3) << p.name;
    EXPECT_NEAR(b.moved.at(p.name), their_rate, 1e-3) << p.name;
    EXPECT_NEAR(a.shrunk.at(p.name), matrix || embedding ? 0.1 * our_rate : 0, 1e-4) << p.name;
    EXPECT_NEAR(b.shrunk.at(p.name), norm ? 0 : 0.1 * their_rate, 1e-4) << p.name;
  }
  EXPECT_EQ(norms, 2 * 4 + 1);
}

// The reference engine trains with the same choices: rounding apart, a hundredth of what one of them moves.
TEST(Recipe, BothEnginesTakeTheSameSteps) {
  const std::vector<std::string> sets = {"model.mup=true", "model.compressor=block",
                                         "model.channel_compressor=convolution", "model.norm_eps=1e-4"};
  OptimizerConfig theirs;
  theirs.decay = Decays::kAllButNorms, theirs.mup_rates = MupRates::kAllButEmbedding;
  const auto x = tokens(8, 1), y = tokens(8, 2);
  const auto trained = [&](const char* engine, const OptimizerConfig& c) {
    ModelConfig m = with("ddl-cc", sets);
    m.set(engine);
    const auto model = make_trainable(m, {2, 4}, c, 1, Exec{});
    scramble(*model);
    for (int step = 0; step < 3; ++step) {
      model->loss_and_grad({x.data(), y.data()}, 1, Exec{});
      model->update(1e-3, Exec{});
    }
    model->download(Exec{});
    return std::vector<float>(model->weights().values().begin(), model->weights().values().end());
  };
  const auto apart = [](std::vector<float> a, const std::vector<float>& b) {
    for (std::size_t i = 0; i < a.size(); ++i) a[i] -= b[i];
    return deviation(a);
  };
  const std::vector<float> native = trained("model.engine=native", theirs);
  const double rounding = apart(native, trained("model.engine=reference", theirs));
  for (const bool decay : {true, false}) {
    OptimizerConfig other = theirs;
    if (decay)
      other.decay = Decays::kMatrices;
    else
      other.mup_rates = MupRates::kMatrices;
    EXPECT_GT(apart(native, trained("model.engine=native", other)), 100 * rounding) << decay;
  }
}

}  // namespace
}  // namespace ddl
