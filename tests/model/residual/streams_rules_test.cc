// What is special about rules with mixed streams: where they start, what their mixing conserves, what they keep.
#include <gtest/gtest.h>

#include "model/oracle_model.h"
#include "model/plan.h"

namespace ddl {
namespace {

const char* const kStreamRules[] = {"hc", "hc-static", "mhc"};

// Logits after each of the tokens.
std::vector<double> logits_of(const Weights& weights, const std::vector<std::int32_t>& x) {
  const auto decoder = make_decoder(weights, {}, Exec{});
  std::vector<double> all;
  const Decoder::Append a{0, x};
  decoder->append_visiting(
      {&a, 1}, [&](Index, Index, std::span<const float> z) { all.insert(all.end(), z.begin(), z.end()); },
      Exec{});
  return all;
}

// A model as it starts.
Weights started(const ModelConfig& m) { return Weights(m, 5, Exec{}); }

// Tensors of the same name become `from`'s.
void share(Weights& to, const Weights& from) {
  for (const Param& p : from.table().list()) {
    const Param& own = to.table().find(p.name);
    ASSERT_EQ(own.count, p.count);
    std::copy_n(from.values().begin() + p.offset, p.count, to.values().begin() + own.offset);
  }
  to.update_copy(Exec{});
}

// At the start every stream is the additive stream: each sublayer reads one of them, and each write goes to all. The
// readout is D times as large, which its norm removes but for the guard under the root; embeddings of size 10 make
// that smaller than rounding.
TEST(HyperConnections, StartAsTheAdditiveModelWithTheSameWeights) {
  const auto x = tokens(12, 1);
  ModelConfig additive = model_config({.residual = "baseline"});
  additive.embedding_std = 10;
  const Weights baseline = started(additive);
  const auto expected = logits_of(baseline, x);
  for (const char* rule : {"hc-static", "hc"})
    for (Index D : {2, 4, 8}) {
      ModelConfig m = model_config({.residual = rule, .channels = D});
      m.embedding_std = 10;
      Weights weights = started(m);
      EXPECT_GT(rounding_ratio(logits_of(weights, x), expected, roundings(m, 12)), 1)
          << "their own output projections are larger";
      share(weights, baseline);
      EXPECT_LT(rounding_ratio(logits_of(weights, x), expected, roundings(m, 12)), 1) << rule << D;
      weights.values()[weights.table().find("transformer.h.1.hc_attn.static_read").offset] += 1e-2f;
      EXPECT_LT(rounding_ratio(logits_of(weights, x), expected, roundings(m, 12)), 1)
          << "equal streams: another mix reads a multiple, which the norm removes";
      weights.values()[weights.table().find("transformer.h.0.hc_mlp.static_write").offset] += 1;
      EXPECT_GT(rounding_ratio(logits_of(weights, x), expected, roundings(m, 12)), 1) << "mutant";
    }
}

TEST(HyperConnections, OutputProjectionsStartLargerByTheRootOfTheStreams) {
  const Weights baseline = started(model_config({.residual = "baseline"}));
  const auto ratio = [&](const char* rule, Index channels, const char* name) {
    const Weights weights = started(model_config({.residual = rule, .channels = channels}));
    return weights.values()[weights.table().find(name).offset] /
           baseline.values()[baseline.table().find(name).offset];
  };
  for (const char* output : {"transformer.h.1.attn.c_proj.weight", "transformer.h.0.mlp.c_proj.weight"}) {
    EXPECT_FLOAT_EQ(ratio("hc", 4, output), 2);
    EXPECT_FLOAT_EQ(ratio("hc-static", 2, output), std::sqrt(2.0f));
    EXPECT_EQ(ratio("mhc", 4, output), 1);
    EXPECT_EQ(ratio("ddl-cc", 4, output), 1);
  }
  EXPECT_EQ(ratio("hc", 4, "transformer.h.1.attn.c_q.weight"), 1);
}

// The dynamic part is zero at the start.
TEST(HyperConnections, DynamicStartsWithTheBitsOfStatic) {
  const auto x = tokens(12, 1);
  const Weights dynamic = started(model_config({.residual = "hc"}));
  EXPECT_EQ(logits_of(dynamic, x), logits_of(started(model_config({.residual = "hc-static"})), x));
}

TEST(StreamsRules, StartingValuesNameAStreamPerSublayer) {
  ModelConfig m = model_config({.residual = "hc", .channels = 3});
  m.layers = 3;
  const Weights weights = started(m);
  const auto values = [](const Weights& w, const std::string& name) {
    const Param& p = w.table().find(name);
    return std::vector<float>(w.values().begin() + p.offset, w.values().begin() + p.offset + p.count);
  };
  using Row = std::vector<float>;
  EXPECT_EQ(values(weights, "transformer.h.0.hc_attn.static_read"), Row({1, 0, 0}));
  EXPECT_EQ(values(weights, "transformer.h.0.hc_mlp.static_read"), Row({0, 1, 0}));
  EXPECT_EQ(values(weights, "transformer.h.1.hc_mlp.static_read"), Row({1, 0, 0}))
      << "sublayer 3 of 3 streams";
  EXPECT_EQ(values(weights, "transformer.h.2.hc_mlp.static_mix"), Row({1, 0, 0, 0, 1, 0, 0, 0, 1}));
  EXPECT_EQ(values(weights, "transformer.h.2.hc_mlp.static_write"), Row({1, 1, 1}));
  EXPECT_EQ(values(weights, "transformer.h.2.hc_mlp.mix_scale"), Row({0.01f}));

  const Weights four = started(model_config({.residual = "mhc"}));
  EXPECT_EQ(values(four, "transformer.h.1.mhc_attn.read.bias"), Row({-1, -1, 1, -1}));
  EXPECT_EQ(values(four, "transformer.h.1.mhc_mlp.write.bias"), Row({-1, -1, -1, 1}));
  Row mix(24, -8);
  mix[0] = 0;
  EXPECT_EQ(values(four, "transformer.h.0.mhc_attn.mix.bias"), mix);
  EXPECT_EQ(values(four, "transformer.h.0.mhc_attn.scales"), Row(3, 0.01f));
}

// Decay would pull the mix from the identity to zero.
TEST(StreamsRules, OnlyRowsOfWeightsDecay) {
  for (const char* rule : kStreamRules) {
    const Weights weights(model_config({.residual = rule}));
    Index streams = 0;
    for (const Param& p : weights.table().list()) {
      if (p.name.find("hc_") == std::string::npos) continue;
      ++streams;
      const bool row = p.name.ends_with(".weight") && !p.name.ends_with("norm.weight");
      EXPECT_EQ(p.decays, row) << p.name;
    }
    EXPECT_GT(streams, 0);
  }
}

// vanishes() of oracle_model.h. Without a guard in the norms nothing is left of them in f64, and only rounding in f32,
// beside the same tensors of the other sublayers, whose terms do not cancel.
TEST(ManifoldConnections, GradientsThatASymmetryRemovesVanish) {
  const BatchShape shape{2, 4};
  const auto x = tokens(8, 1), y = tokens(8, 2);
  ModelConfig m = model_config({.residual = "mhc"});
  m.norm_eps = 0;
  const auto model = trainable(m, shape);
  scramble(*model);
  model->loss_and_grad({x.data(), y.data()}, 1, Exec{});
  const auto gradients = [&](const ref::Parameters<double>& parameters) {
    return ref::loss_gradient_by_tape(oracle_shape(m), *make_oracle<ref::Var>(m), parameters, x, y, shape.B,
                                      shape.T)
        .gradient;
  };
  const auto parameters = oracle_parameters(model->weights());
  const auto truth = gradients(parameters), moved = gradients(nudged(parameters));
  const auto kind = [](const std::string& name) { return name.substr(name.rfind('.', name.rfind('.') - 1)); };
  const double walk = 16 * 0x1p-24 * std::sqrt(static_cast<double>(roundings(m, shape.N())));
  Index vanished = 0;
  for (const Param& p : model->weights().table().list()) {
    if (!vanishes(m, p.name)) continue;
    ++vanished;
    double other = 0, amplified = 1;  // of the same tensor elsewhere
    for (const auto& [name, gradient] : truth)
      if (name.find("mhc_") != std::string::npos && !vanishes(m, name) && kind(name) == kind(p.name)) {
        other = std::max(other, rms(gradient));
        amplified = std::max(amplified, amplification(gradient, moved.at(name)));
      }
    EXPECT_GT(other, 0) << p.name;
    EXPECT_LT(rms(truth.at(p.name)), 1e-12 * other) << p.name;
    EXPECT_LT(rms(tensor(model->gradients(), p)), walk * amplified * other) << p.name;
  }
  EXPECT_EQ(vanished, 6);
  // The list is as short as it can be: what it leaves out does not vanish.
  for (const auto& [name, gradient] : truth)
    if (name.find("mhc_") != std::string::npos && !vanishes(m, name)) {
      EXPECT_GT(rms(gradient), 1e-6) << name;
    }
}

// How far the mixing matrices of a scrambled model are from doubly stochastic.
double distance_from_doubly_stochastic(const char* rule) {
  const auto model = trainable(model_config({.residual = rule, .channels = 4}), {2, 6});
  scramble(*model);
  const auto x = tokens(12, 1), y = tokens(12, 2);
  model->loss_and_grad({x.data(), y.data()}, 1, Exec{});
  double worst = 0, moved = 0;
  for (Index s = 0; s < model->config().sublayers(); ++s)
    for (const TokenSeries& series : model->series(s)) {
      if (series.name != "mixing") continue;
      EXPECT_EQ(series.per_token, 16);
      for (Index n = 0; n < 12; ++n) {
        const float* mix = series.values + n * series.stride;
        for (Index i = 0; i < 4; ++i) {
          double row = 0, column = 0;
          for (Index j = 0; j < 4; ++j) {
            row += double{mix[i * 4 + j]}, column += double{mix[j * 4 + i]};
            worst = std::max(worst, -double{mix[i * 4 + j]});
            moved = std::max(moved, std::abs(double{mix[i * 4 + j]} - double{series.values[i * 4 + j]}));
          }
          worst = std::max({worst, std::abs(row - 1), std::abs(column - 1)});
        }
      }
    }
  EXPECT_EQ(moved > 1e-3, rule != std::string("hc-static"))
      << "whether the mix depends on the token: " << rule;
  return worst;
}

TEST(ManifoldConnections, MixingIsDoublyStochastic) {
  // Of 24 weights, each to half an epsilon, and their sums.
  EXPECT_LT(distance_from_doubly_stochastic("mhc"), 48 * 0x1p-24);
  EXPECT_GT(distance_from_doubly_stochastic("hc"), 0.1);
  EXPECT_GT(distance_from_doubly_stochastic("hc-static"), 0.1);
}

TEST(StreamsRules, SeriesSayWhatTheNumbersAre) {
  const auto model = trainable(model_config({.residual = "hc", .channels = 3}), {1, 4});
  const auto x = tokens(4, 1), y = tokens(4, 2);
  model->loss_and_grad({x.data(), y.data()}, 1, Exec{});
  for (Index s = 0; s < 4; ++s) {
    const auto all = model->series(s);
    ASSERT_EQ(all.size(), 4u);
    for (const TokenSeries& series : all)
      for (Index n = 0; n < 4; ++n)
        for (Index i = 0; i < series.per_token; ++i) {
          const float expected = series.name == "read weight"       ? (i == s % 3 ? 1.0f : 0.0f)
                                 : series.name == "write weight"    ? 1.0f
                                 : series.name == "mixing"          ? (i % 4 == 0 ? 1.0f : 0.0f)
                                 : series.name == "mixing diagonal" ? 1.0f
                                                                    : -1.0f;
          EXPECT_EQ(series.values[n * series.stride + i], expected) << series.name << s << i;
        }
  }
}

// The state in front of every write is kept: S of N D C floats.
TEST(StreamsRules, ThePlanShowsTheMemory) {
  for (const char* rule : kStreamRules) {
    const ModelConfig m = model_config({.residual = rule, .channels = 4});
    std::size_t bytes = 0;
    for (const Arena::Entry& entry : plan_model(m, {2, 8}).memory)
      if (entry.name == "stored states") bytes += entry.bytes;
    EXPECT_EQ(bytes, static_cast<std::size_t>(m.sublayers() * 16 * 4 * m.width) * sizeof(float)) << rule;
    EXPECT_EQ(plan_model(m, {2, 8}).cache_bytes_per_sequence,
              plan_model(model_config({.residual = "baseline"}), {2, 8}).cache_bytes_per_sequence);
  }
}

}  // namespace
}  // namespace ddl
