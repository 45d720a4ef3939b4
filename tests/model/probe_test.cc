// What a probe shows and changes, held to the oracle: states, inputs, outputs and the lens at every depth, and the loss
// under interventions.
#include "model/probe.h"

#include <gtest/gtest.h>

#include "model/oracle_model.h"

namespace ddl {
namespace {

constexpr BatchShape kShape{2, 4};
constexpr Index kN = kShape.B * kShape.T;

// The oracle's numbers at every depth, for parameters as they are and nudged (oracle_model.h).
struct OracleDepths {
  ref::Shape shape;
  std::unique_ptr<ref::Rule<double>> rule;
  ref::Parameters<double> parameters;
  ref::Trace<double> trace;

  OracleDepths(const ModelConfig& config, ref::Parameters<double> numbers)
      : shape(oracle_shape(config)), rule(make_oracle<double>(config)), parameters(std::move(numbers)) {
    ref::Model<double>(shape, *rule, parameters).logits(tokens(kN, 1), kShape.B, kShape.T, &trace);
  }
  const ref::Vec<double>& state(Index s) const {
    return s == 0 ? trace.first_state_NDC : trace.sublayers[s - 1].state_NDC;
  }
  // |x_in| of every token in front of sublayer s.
  std::vector<double> input_norms(Index s) const {
    const bool head = s == std::ssize(trace.sublayers);
    const ref::Vec<double> x_NC = head ? read_as_last(s) : trace.sublayers[s].x_in_NC;
    std::vector<double> norms;
    for (Index n = 0; n < kN; ++n) {
      double sum = 0;
      for (Index c = 0; c < shape.width; ++c) sum += x_NC[n * shape.width + c] * x_NC[n * shape.width + c];
      norms.push_back(std::sqrt(sum));
    }
    return norms;
  }
  ref::Vec<double> read_as_last(Index s) const {
    return rule->read(state(s), {2 * shape.layers, "", "readout"}, parameters, kShape.B, kShape.T);
  }
  // The losses, then the log-probabilities of the input tokens.
  std::vector<double> lens(Index s) const {
    const ref::Vec<double> c_NC =
        ref::rmsnorm(read_as_last(s), parameters.at("ln_f.weight"), kN, shape.width, shape.norm_eps);
    ref::Vec<double> z_NV =
        ref::linear(c_NC, parameters.at("transformer.wte.weight"), kN, shape.width, shape.vocab);
    for (double& z : z_NV) z *= shape.logit_scale;
    const ref::Vec<double> lse_N = ref::logsumexp(z_NV, kN, shape.vocab);
    const auto x = tokens(kN, 1), y = tokens(kN, 2);
    std::vector<double> out;
    for (Index n = 0; n < kN; ++n) out.push_back(lse_N[n] - z_NV[n * shape.vocab + y[n]]);
    for (Index n = 0; n < kN; ++n) out.push_back(z_NV[n * shape.vocab + x[n]] - lse_N[n]);
    return out;
  }
};

// 1 is what rounding explains.
double rounding_error(const std::vector<double>& actual, const std::vector<double>& expected,
                      const std::vector<double>& moved, const ModelConfig& config) {
  return rounding_ratio(actual, expected, roundings(config, kN)) / amplification(expected, moved);
}

class EveryRuleProbed : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Model, EveryRuleProbed, testing::ValuesIn(rule_names()), rule_test_name);

TEST_P(EveryRuleProbed, ShowsWhatTheOracleDoes) {
  const ModelConfig config = model_config({.residual = GetParam(), .mup = true});
  const Weights weights = scrambled_weights(config);
  const auto probe = make_probe(weights, kShape, Exec{});
  const OracleDepths truth(config, oracle_parameters(weights)),
      moved(config, nudged(oracle_parameters(weights)));
  const auto x = tokens(kN, 1), y = tokens(kN, 2);
  const BatchView batch{x.data(), y.data()};
  const Index S = config.sublayers(), C = config.width;
  Index visits = 0;
  probe->watch(
      batch, {},
      [&](const Probe::Depth& depth) {
        const Index s = depth.s;
        EXPECT_EQ(s, visits++);
        if (depth.state.state_NDC) {
          const Index numbers = kN * depth.state.channels * C;
          const auto part = [&](const ref::Vec<double>& state) {
            return std::vector<double>(state.begin(), state.begin() + numbers);
          };
          EXPECT_LT(rounding_error({depth.state.state_NDC, depth.state.state_NDC + numbers},
                                   part(truth.state(s)), part(moved.state(s)), config),
                    1)
              << s;
          // The test can fail: the state of the depth before is not this one.
          if (s > 0) {
            EXPECT_GT(
                rounding_error(part(truth.state(s - 1)), part(truth.state(s)), part(moved.state(s)), config),
                1);
          }
        }
        std::vector<double> norms;
        for (Index n = 0; n < kN; ++n) {
          const double rstd = static_cast<double>(depth.state.rstd_N[n]);
          norms.push_back(std::sqrt(static_cast<double>(C) * (1 / (rstd * rstd) - config.norm_eps)));
        }
        EXPECT_LT(rounding_error(norms, truth.input_norms(s), moved.input_norms(s), config), 1) << s;
        ASSERT_EQ(depth.h_NC == nullptr, s == S);
        if (s < S) {
          EXPECT_LT(rounding_error({depth.h_NC, depth.h_NC + kN * C}, truth.trace.sublayers[s].h_NC,
                                   moved.trace.sublayers[s].h_NC, config),
                    1)
              << s;
        }
        std::vector<float> loss_N(kN), own_N(kN);
        ASSERT_TRUE(probe->lens(batch, {.loss_N = loss_N.data(), .own_N = own_N.data()}, Exec{}));
        std::vector<double> lens(loss_N.begin(), loss_N.end());
        lens.insert(lens.end(), own_N.begin(), own_N.end());
        EXPECT_LT(rounding_error(lens, truth.lens(s), moved.lens(s), config), 1) << s;
        if (s < S) {
          EXPECT_GT(rounding_error(lens, truth.lens(s + 1), moved.lens(s + 1), config), 1) << s;
        }
      },
      Exec{});
  EXPECT_EQ(visits, S + 1);
}

// Watching and the lens leave the pass as it is: training's bits.
TEST_P(EveryRuleProbed, HasTheLossOfTraining) {
  const ModelConfig config = model_config({.residual = GetParam()});
  const auto model = trainable(config, kShape);
  scramble(*model);
  const auto probe = make_probe(model->weights(), kShape, Exec{});
  const auto x = tokens(kN, 1), y = tokens(kN, 2);
  const BatchView batch{x.data(), y.data()};
  const double loss = model->loss(batch, {}, Exec{});
  EXPECT_EQ(probe->loss(batch, {}, Exec{}), loss);
  const auto look = [&](const Probe::Depth&) { probe->lens(batch, {}, Exec{}); };
  EXPECT_EQ(probe->watch(batch, {}, look, Exec{}), loss);
}

// The oracle of a rule with one sublayer's output, or what steers its write, replaced.
class ChangedOracle final : public ref::Rule<double> {
 public:
  ChangedOracle(const ModelConfig& config, Replacement change)
      : config_(config), inner_(make_oracle<double>(config)), change_(std::move(change)) {}

  void add_counts(std::map<std::string, Index>& counts) const override { inner_->add_counts(counts); }
  ref::Vec<double> start(const ref::Vec<double>& x_NC, const ref::Parameters<double>& w, Index B,
                         Index T) const override {
    return inner_->start(x_NC, w, B, T);
  }
  ref::Vec<double> read(const ref::Vec<double>& state, const ref::Place& place,
                        const ref::Parameters<double>& w, Index B, Index T) const override {
    return inner_->read(state, place, w, B, T);
  }
  ref::Vec<double> write(const ref::Vec<double>& state, ref::SublayerTrace<double>& sublayer,
                         const ref::Place& place, const ref::Parameters<double>& w, Index N) const override {
    if (place.s != change_.sublayer) return inner_->write(state, sublayer, place, w, N);
    if (change_.series == kOutputSeries) {
      for (std::size_t i = 0; i < sublayer.h_NC.size(); ++i)
        sublayer.h_NC[i] = static_cast<double>(change_.values[i % change_.values.size()]);
      return inner_->write(state, sublayer, place, w, N);
    }
    // X + k (bw v - be r)^T, of which ddl and write-only are special cases.
    inner_->write(state, sublayer, place, w, N);
    const Index C = config_.width, D = div_exact(std::ssize(state), N * C);
    const std::string name = place.block + "ddl_" + place.kind;
    const bool two_gates = config_.residual().starts_with("ddl-ew"),
               writes_only = config_.residual().starts_with("wo-");
    const auto gate = [&](const char* gate_name) {
      return ref::gate_linear(sublayer.c_NC, w.at(name + gate_name + ".weight"),
                              w.at(name + gate_name + ".bias"), N, C);
    };
    ref::Vec<double> bw = gate(two_gates ? ".beta_write" : ".beta"),
                     be = two_gates ? gate(".beta_erase") : bw;
    if (writes_only) be.assign(bw.size(), 0.0);
    ref::Vec<double> v = ref::value_sigmoid(sublayer.x_in_NC, w.at(name + ".v_proj.weight"),
                                            w.at(name + ".v_proj.bias"), N, C, D);
    const ref::Vec<double> k = ref::direction(sublayer.h_NC, N, C);
    ref::Vec<double> r = ref::readout(state, k, N, D, C);
    const auto fill = [&](ref::Vec<double>& values) {
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<double>(change_.values[i % change_.values.size()]);
    };
    if (change_.series == "gate" || change_.series == "write gate") fill(bw);
    if ((change_.series == "gate" && !writes_only) || change_.series == "erase gate") fill(be);
    if (change_.series == "target") fill(v);
    if (change_.series == "readout") fill(r);
    ref::Vec<double> next = state;
    for (Index n = 0; n < N; ++n)
      for (Index d = 0; d < D; ++d)
        for (Index c = 0; c < C; ++c)
          next[(n * D + d) * C + c] += (bw[n] * v[n * D + d] - be[n] * r[n * D + d]) * k[n * C + c];
    return next;
  }

 private:
  const ModelConfig config_;
  const std::unique_ptr<ref::Rule<double>> inner_;
  const Replacement change_;
};

double changed_truth(const ModelConfig& config, const ref::Parameters<double>& parameters,
                     const Replacement& change) {
  const ref::Shape shape = oracle_shape(config);
  const ChangedOracle rule(config, change);
  return ref::Model<double>(shape, rule, parameters).loss(tokens(kN, 1), tokens(kN, 2), kShape.B, kShape.T);
}

// At every sublayer; and the truth of another sublayer is told from it.
void check_intervention(const std::string& residual, const std::string& series,
                        const std::vector<float>& values) {
  const ModelConfig config = model_config({.residual = residual});
  const Weights weights = scrambled_weights(config);
  const auto probe = make_probe(weights, kShape, Exec{});
  const auto parameters = oracle_parameters(weights), moved = nudged(parameters);
  const auto x = tokens(kN, 1), y = tokens(kN, 2);
  const BatchView batch{x.data(), y.data()};
  const double before = probe->loss(batch, {}, Exec{});
  const Index S = config.sublayers();
  for (Index s = 0; s < S; ++s) {
    const Replacement change{s, series, values};
    ASSERT_TRUE(probe->replace(&change)) << residual << " " << series;
    const double loss = probe->loss(batch, {}, Exec{});
    const auto distance = [&](Index sublayer) {
      const Replacement there{sublayer, series, values};
      return rounding_error({loss}, {changed_truth(config, parameters, there)},
                            {changed_truth(config, moved, there)}, config);
    };
    EXPECT_LT(distance(s), 1) << residual << " " << series << " at " << s;
    EXPECT_GT(distance((s + 1) % S), 1) << residual << " " << series << " at " << s;
    probe->replace(nullptr);
    EXPECT_EQ(probe->loss(batch, {}, Exec{}), before) << "the end of an intervention";
  }
}

TEST(Interventions, OfGatesTargetsAndReadoutsHaveTheOraclesLoss) {
  for (const char* rule : {"ddl-dv1", "ddl-cc", "ddl-tc"}) {
    const bool one = rule == std::string("ddl-dv1");
    for (const float beta : {0.0f, 1.0f, 0.7f}) check_intervention(rule, "gate", {beta});
    check_intervention(rule, "readout", std::vector<float>(one ? 1 : 3, 0.0f));
    check_intervention(rule, "target", one ? std::vector{1.5f} : std::vector{1.5f, -0.5f, 2.5f});
  }
  check_intervention("wo-cc", "gate", {1});
  check_intervention("wo-cc", "target", {1.5f, -0.5f, 2.5f});
  check_intervention("ddl-ew-cc", "erase gate", {0});
  check_intervention("ddl-ew-cc", "write gate", {0.7f});
  check_intervention("ddl-ew-cc", "readout", {0, 0, 0});
}

TEST(Probe, LogitsAreThoseOfTheLoss) {
  for (const Precision precision : {Precision::kF32, Precision::kBf16}) {
    ModelConfig config = model_config({.mup = true});
    config.precision = precision;
    const Weights weights = scrambled_weights(config);
    const auto probe = make_probe(weights, kShape, Exec{});
    const auto x = tokens(kN, 1), y = tokens(kN, 2);
    std::vector<float> loss_N(kN);
    probe->loss({x.data(), y.data()}, {.loss_N = loss_N.data()}, Exec{});
    for (Index n = 0; n < kN; ++n) {
      const std::vector<float> z_V = probe->logits(n, Exec{});
      double sum = 0;
      for (const float z : z_V) sum += std::exp(double{z});
      EXPECT_NEAR(std::log(sum) - double{z_V[y[n]]}, double{loss_N[n]}, 1e-5) << config.numbers() << " " << n;
    }
  }
}

class EveryRuleChanged : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Model, EveryRuleChanged, testing::ValuesIn(rule_names()), rule_test_name);
TEST_P(EveryRuleChanged, OutputsHaveTheOraclesLoss) {
  check_intervention(GetParam(), kOutputSeries, {0.3f, -0.2f, 0.5f, 0.1f, -0.4f, 0.2f, 0.6f, -0.1f});
}

TEST(Interventions, WhatCannotBeReplacedIsRefused) {
  const auto possible = [](const char* rule, Replacement change) {
    const Weights weights = scrambled_weights(model_config({.residual = rule}));
    return make_probe(weights, kShape, Exec{})->replace(&change);
  };
  EXPECT_TRUE(possible("ddl-cc", {0, "gate", {1}}));
  EXPECT_FALSE(possible("ddl-cc", {0, "gates", {1}}));
  EXPECT_FALSE(possible("ddl-cc", {0, "gate", {1, 1}}));
  EXPECT_FALSE(possible("ddl-cc", {0, "readout", {0, 0, 1}})) << "a readout is dropped or left alone";
  EXPECT_FALSE(possible("wo-cc", {0, "readout", {0, 0, 0}}));
  EXPECT_FALSE(possible("baseline", {0, "gate", {1}}));
  EXPECT_FALSE(possible("highway", {0, "gate", {1}}));
  EXPECT_FALSE(possible("baseline", {0, kOutputSeries, {1}}));
}

}  // namespace
}  // namespace ddl
