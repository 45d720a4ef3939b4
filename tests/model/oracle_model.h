// Small models of every rule beside the oracle's twin of each: what tests of the model, of decoding and of
// scoring share.
#pragma once

#include "core/rng.h"
#include "kernels/kernel_test.h"
#include "model/engine.h"
#include "model/reference/oracle.h"
#include "model/residual/registry.h"
#include "model/weights.h"
#include "ref/model.h"

namespace ddl {

struct Case {
  std::string residual = "ddl-cc";
  Index channels = 3;
  std::string value = "sigmoid", gate = "linear", compressor = "sublayer";
  Index B = 2, T = 4;
  bool mup = false;
};

// Sets an option where the rule has it.
inline void set_if_known(ModelConfig& m, const std::string& key, const std::string& value) {
  Options options;
  m.describe(options);
  if (options.contains(key)) options.set(key + "=" + value);
}

inline bool has_option(const std::string& rule, const std::string& key) {
  ModelConfig m;
  m.use_residual(rule);
  Options options;
  m.describe(options);
  return options.contains(key);
}

inline ModelConfig model_config(const Case& c) {
  ModelConfig m;
  m.layers = 2, m.width = 8, m.heads = 2, m.mlp = 7, m.vocab = 11, m.context = 16;
  m.precision = Precision::kF32, m.mup = c.mup, m.base_width = 16;
  m.use_residual(c.residual);
  set_if_known(m, "model.channels", std::to_string(c.channels));
  set_if_known(m, "model.value", c.value);
  set_if_known(m, "model.gate", c.gate);
  set_if_known(m, "model.gate_hidden", "5");
  set_if_known(m, "model.compressor", c.compressor);
  set_if_known(m, "model.state_kernel", "3");
  set_if_known(m, "model.embed_kernel", "4");
  return m;
}

// D of the rule's state; 1 where it has no such option, but for mhc, whose streams are four.
inline Index channels_of(ModelConfig m) {
  if (m.residual() == "mhc") return 4;
  Options options;
  m.describe(options);
  for (const Options::Option& option : options.list())
    if (option.key() == "model.channels") return std::stoll(option.value());
  return 1;
}

inline std::unique_ptr<TrainableModel> trainable(const ModelConfig& config, BatchShape shape,
                                                 std::uint64_t seed = 1, const Exec& ex = {}) {
  return make_trainable(config, shape, OptimizerConfig{}, seed, ex);
}

// Parameters far from any special point, so that no term is zero by accident.
inline void scramble(Weights& weights) {
  for (const Param& p : weights.table().list()) {
    const Random random(7, p.name);
    const bool norm = p.name.ends_with("ln_1.weight") || p.name.ends_with("ln_2.weight") ||
                      p.name.ends_with("ln_f.weight") || p.name.ends_with("_rms.weight");
    for (Index i = 0; i < p.count; ++i)
      weights.values()[p.offset + i] =
          static_cast<float>((norm ? 1.0 : 0.0) + 0.4 * random.normal(static_cast<std::uint64_t>(i)));
  }
  weights.update_copy(Exec{});
}

inline void scramble(TrainableModel& model) {
  scramble(model.weights());
  model.upload(Exec{});
}

inline Weights scrambled_weights(const ModelConfig& config) {
  Weights weights(config);
  scramble(weights);
  return weights;
}

inline std::vector<double> tensor(std::span<const float> array, const Param& p) {
  return {array.begin() + p.offset, array.begin() + p.offset + p.count};
}

inline std::vector<std::int32_t> tokens(Index n, std::uint64_t seed, Index vocab = 11) {
  std::vector<std::int32_t> out(n);
  const Random random(seed, "tokens");
  for (Index i = 0; i < n; ++i)
    out[i] = static_cast<std::int32_t>(
        random.below(static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(vocab)));
  return out;
}

// The rule's name as part of a test's name.
inline std::string rule_test_name(const testing::TestParamInfo<std::string>& param) {
  std::string name = param.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

// Each sublayer adds sums over C, D and the kernel's taps, mhc also over its 32 rows and 24 permutations; weight
// gradients sum over tokens as well.
inline Index roundings(const ModelConfig& m, Index N) {
  const Index mixing = m.residual() == "mhc" ? 32 + 24 : 0;
  return m.sublayers() * (4 * m.width + m.mlp_width() + 4 * m.width * channels_of(m) + mixing) + m.vocab + N;
}

inline double rms(const std::vector<double>& x) {
  double squares = 0;
  for (double v : x) squares += v * v;
  return std::sqrt(squares / static_cast<double>(x.size()));
}

// How much a relative change of every parameter by f32's epsilon moves a gradient tensor, in units of epsilon
// times the tensor's size: what the problem itself makes of rounding. An f32 gradient cannot be closer than
// that.
inline double amplification(const std::vector<double>& gradient, const std::vector<double>& moved) {
  std::vector<double> change = moved;
  for (std::size_t i = 0; i < change.size(); ++i) change[i] -= gradient[i];
  return std::max(1.0, rms(change) / rms(gradient) / std::numeric_limits<float>::epsilon());
}

inline ref::Parameters<double> nudged(ref::Parameters<double> parameters) {
  for (auto& [name, values] : parameters) {
    const Random random(9, name);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] *= 1 + (random.bits(i) & 1 ? 1 : -1) * double{std::numeric_limits<float>::epsilon()};
  }
  return parameters;
}

inline std::vector<double> oracle_logits(const ModelConfig& config, const ref::Parameters<double>& parameters,
                                         const std::vector<std::int32_t>& token_N, Index B, Index T) {
  const ref::Shape shape = oracle_shape(config);
  const auto rule = make_oracle<double>(config);
  return ref::Model<double>(shape, *rule, parameters).logits(token_N, B, T);
}

// What the oracle says about a batch: the loss, every gradient, and the gradients of the nudged parameters, which only
// measure amplification. By tape: one pass, where complex step needs one for every number (model_test.cc holds the
// tape to complex step for every rule).
struct Truth {
  double loss = 0;
  ref::Parameters<double> gradients, moved;
  Index roundings = 0;  // of the rule itself: a mutant's name does not say how many its rule has
};
inline Truth oracle_truth(const ModelConfig& config, const ref::Parameters<double>& parameters,
                          const std::vector<std::int32_t>& x, const std::vector<std::int32_t>& y, Index B,
                          Index T) {
  const ref::Shape shape = oracle_shape(config);
  const auto rule = make_oracle<ref::Var>(config);
  auto [loss, gradients] = ref::loss_gradient_by_tape(shape, *rule, parameters, x, y, B, T);
  auto moved = ref::loss_gradient_by_tape(shape, *rule, nudged(parameters), x, y, B, T).gradient;
  return {loss, std::move(gradients), std::move(moved), roundings(config, B * T)};
}

// Gradients that vanish by a symmetry of the rule whatever the weights are, so that nothing but rounding and the norms'
// guard is left of them and a relative error says nothing. The streams of mhc start equal, so its first sublayer reads
// a positive multiple of the embedding, which the norm removes, and mixing them changes nothing; and its readout sums
// the streams, which the last mix leaves as it was. streams_rules_test.cc shows that they vanish, and
// residual/permutation_mixer_test.cc holds them to the oracle where the streams differ.
inline bool vanishes(const ModelConfig& m, const std::string& tensor_name) {
  return tensor_name.starts_with("transformer.h.0.mhc_attn.read.") ||
         tensor_name.starts_with("transformer.h.0.mhc_attn.mix.") ||
         tensor_name.starts_with(fmt::format("transformer.h.{}.mhc_mlp.mix.", m.layers - 1));
}

// The largest error of the loss or of any tensor's gradient, 1 being what rounding explains.
inline double worst_error(double loss, TrainableModel& model, const Truth& truth) {
  double worst = rounding_ratio({loss}, {truth.loss}, truth.roundings);
  for (const Param& p : model.weights().table().list()) {
    if (vanishes(model.config(), p.name)) continue;
    const auto& expected = truth.gradients.at(p.name);
    worst = std::max(worst, rounding_ratio(tensor(model.gradients(), p), expected, truth.roundings) /
                                amplification(expected, truth.moved.at(p.name)));
  }
  return worst;
}

// The same for a scrambled model of this configuration and a batch of its own.
inline double worst_error(const ModelConfig& config, BatchShape shape = {2, 4}) {
  const Exec ex{.threads = 2};
  const auto model = trainable(config, shape, 1, ex);
  scramble(*model);
  const auto x = tokens(shape.N(), 1), y = tokens(shape.N(), 2);
  const double loss = model->loss_and_grad({x.data(), y.data()}, 1, ex);
  return worst_error(loss, *model,
                     oracle_truth(config, oracle_parameters(model->weights()), x, y, shape.B, shape.T));
}

// One sequence with the oracle's logits after every token.
struct Sequence {
  std::vector<std::int32_t> tokens;
  std::vector<double> truth_TV;
  double amplified = 1;  // what the problem itself makes of rounding, in units of f32's epsilon
};
inline Sequence oracle_sequence(const ModelConfig& config, const ref::Parameters<double>& parameters, Index n,
                                std::uint64_t seed) {
  Sequence s{tokens(n, seed), {}, 1};
  s.truth_TV = oracle_logits(config, parameters, s.tokens, 1, n);
  s.amplified = amplification(s.truth_TV, oracle_logits(config, nudged(parameters), s.tokens, 1, n));
  return s;
}
// How far logits after token t are from the truth, 1 being what rounding explains.
inline double logits_error(const ModelConfig& config, const Sequence& s, Index t,
                           std::span<const float> logits) {
  const auto row = s.truth_TV.begin() + t * config.vocab;
  return rounding_ratio({logits.begin(), logits.end()}, {row, row + config.vocab}, roundings(config, t + 1)) /
         s.amplified;
}

inline std::span<const std::int32_t> part(const Sequence& s, Index begin, Index count) {
  return std::span(s.tokens).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count));
}

// The largest such error where a sequence of n tokens is decoded `step` tokens at a time.
inline double worst_decoding_error(const ModelConfig& config, Index n, Index step) {
  const Weights weights = scrambled_weights(config);
  const Sequence s = oracle_sequence(config, oracle_parameters(weights), n, 1);
  const auto decoder = make_decoder(weights, {}, Exec{});
  double worst = 0;
  for (Index t = 0; t < n; t += step) {
    const Decoder::Append a{0, part(s, t, std::min(step, n - t))};
    decoder->append_visiting(
        {&a, 1},
        [&](Index, Index j, std::span<const float> logits) {
          worst = std::max(worst, logits_error(config, s, t + j, logits));
        },
        Exec{});
  }
  return worst;
}

}  // namespace ddl
