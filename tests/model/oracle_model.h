// Small models of every rule beside the oracle's twin of each: what tests of the model and of decoding share.
#pragma once

#include "core/rng.h"
#include "kernels/kernel_test.h"
#include "model/model.h"
#include "ref/model.h"

namespace ddl {

struct Case {
  std::string residual = "ddl-cc";
  Index channels = 3;
  std::string value = "sigmoid", gate = "linear", compressor = "sublayer";
  Index B = 2, T = 4;
  bool mup = false;
};

inline ModelConfig model_config(const Case& c) {
  ModelConfig m;
  m.layers = 2, m.width = 8, m.heads = 2, m.mlp = 7, m.vocab = 11, m.context = 16;
  m.residual = c.residual, m.channels = c.channels, m.value = c.value, m.gate = c.gate,
  m.compressor = c.compressor;
  m.gate_hidden = 5, m.state_kernel = 3, m.embed_kernel = 4, m.precision = "f32", m.mup = c.mup,
  m.base_width = 16;
  return m;
}

inline ref::Config oracle_config(const Case& c) {
  const ModelConfig m = model_config(c);
  ref::Config r{.layers = m.layers,
                .heads = m.heads,
                .head_size = m.head_size(),
                .width = m.width,
                .mlp = m.mlp_width(),
                .vocab = m.vocab,
                .channels = m.channels,
                .compress_kernel = m.state_kernel,
                .embed_kernel = m.embed_kernel};
  r = ref::with_variant(r, c.residual);
  r.gate = c.gate == "linear" ? ref::Gate::linear : ref::Gate::two_layer;
  r.gate_hidden = m.gate_hidden;
  r.value = c.value == "sigmoid"  ? ref::Value::sigmoid
            : c.value == "biased" ? ref::Value::biased
                                  : ref::Value::linear;
  r.compressor_per_sublayer = c.compressor == "sublayer";
  r.logit_scale = m.logit_scale();
  return r;
}

// Parameters far from any special point, so that no term is zero by accident. T: what GEMMs see.
inline void scramble(Model& model) {
  for (const Param& p : model.table().list()) {
    const Random random(7, p.name);
    const bool norm = p.name.ends_with("ln_1.weight") || p.name.ends_with("ln_2.weight") ||
                      p.name.ends_with("ln_f.weight") || p.name.ends_with("_rms.weight");
    for (Index i = 0; i < p.count; ++i)
      model.params()[p.offset + i] =
          static_cast<float>((norm ? 1.0 : 0.0) + 0.4 * random.normal(static_cast<std::uint64_t>(i)));
  }
  model.params_changed(Exec{});
}

inline std::vector<double> tensor(std::span<const float> array, const Param& p) {
  return {array.begin() + p.offset, array.begin() + p.offset + p.count};
}

inline ref::Parameters<double> oracle_parameters(Model& model) {
  ref::Parameters<double> out;
  for (const Param& p : model.table().list()) out[p.name] = tensor(model.params(), p);
  return out;
}

inline std::vector<std::int32_t> tokens(Index n, std::uint64_t seed, Index vocab = 11) {
  std::vector<std::int32_t> out(n);
  const Random random(seed, "tokens");
  for (Index i = 0; i < n; ++i)
    out[i] = static_cast<std::int32_t>(
        random.below(static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(vocab)));
  return out;
}

// Each sublayer adds sums over C, D and the kernel's taps; weight gradients sum over tokens as well.
inline Index roundings(const ModelConfig& m, Index N) {
  return m.sublayers() * (4 * m.width + m.mlp_width() + 4 * m.width * m.channels) + m.vocab + N;
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

}  // namespace ddl
