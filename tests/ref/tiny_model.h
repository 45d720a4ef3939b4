// Tiny models of every variant, with parameters from a formula, so that no test needs a data file.
#pragma once

#include <cmath>
#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/rng.h"
#include "ref/model.h"
#include "ref/variant.h"

namespace ddl::ref {

inline constexpr Index kTinyBatch = 2, kTinyTime = 5;

// "variant[/value[/option]]", for example "ddl-cc/biased" or "ddl-cc/sigmoid/two_layer".
inline Config tiny_config(const std::string& name) {
  Config config;
  config.layers = 2, config.heads = 2, config.head_size = 4, config.width = 6, config.mlp = 7,
  config.vocab = 11;
  config.channels = 3;
  config.compress_kernel = 2;
  config.embed_kernel = 3;
  config.gate_hidden = 5;
  std::string variant, value, option;
  std::istringstream parts(name);
  std::getline(parts, variant, '/') && std::getline(parts, value, '/') && std::getline(parts, option, '/');
  config = with_variant(config, variant);
  if (value == "biased") config.value = Value::biased;
  if (value == "linear") config.value = Value::linear;
  if (value == "constant") config.value = Value::constant;
  if (option == "two_layer") config.gate = Gate::two_layer;
  if (option == "per_sublayer") config.compressor_per_sublayer = true;
  if (option == "eps" || option == "eps_width") config.k_eps = 0.2;
  if (option == "eps_width") config.k_eps_times_width = true;
  if (option == "scale") config.logit_scale = 0.25;
  return config;
}

// Element i of tensor j (in name order) is 0.3 sin(0.37 i + 1.3 j), plus 1 for norm weights.
inline Parameters<double> formula_parameters(const Config& config) {
  Parameters<double> parameters;
  Index j = 0;
  for (const auto& [name, count] : parameter_counts(config)) {
    bool norm = false;
    for (const char* ending : {"ln_1.weight", "ln_2.weight", "ln_f.weight", "q_rms.weight", "k_rms.weight"})
      norm = norm || name.ends_with(ending);
    for (Index i = 0; i < count; ++i)
      parameters[name].push_back((norm ? 1 : 0) + 0.3 * std::sin(0.37 * static_cast<double>(i) + 1.3 * j));
    ++j;
  }
  return parameters;
}

inline std::vector<std::int32_t> tiny_tokens(Index vocab = 11) {
  std::vector<std::int32_t> tokens;
  for (Index n = 0; n < kTinyBatch * kTinyTime; ++n)
    tokens.push_back(narrow<std::int32_t>((7 * n * n + 3 * n + 1) % vocab));
  return tokens;
}

inline std::vector<std::int32_t> tiny_targets(Index vocab = 11) {
  std::vector<std::int32_t> targets;
  for (Index n = 0; n < kTinyBatch * kTinyTime; ++n)
    targets.push_back(narrow<std::int32_t>((5 * n * n + 2 * n + 4) % vocab));
  return targets;
}

// Every variant; every value branch of the main ones; every option once.
inline const std::vector<std::string>& tiny_names() {
  static const std::vector<std::string> names = {
      "baseline",
      "ddl-dv1/sigmoid",
      "ddl-tc/sigmoid",
      "ddl-cc/sigmoid",
      "wo-cc/sigmoid",
      "ddl-dv1/biased",
      "ddl-tc/biased",
      "ddl-cc/biased",
      "wo-cc/biased",
      "ddl-dv1/linear",
      "ddl-tc/linear",
      "ddl-cc/linear",
      "wo-cc/linear",
      "ddl-dv1/constant",
      "ddl-tc/constant",
      "ddl-cc/constant",
      "wo-cc/constant",
      "wo-dv1/sigmoid",
      "wo-tc/sigmoid",
      "ddl-cc-noec/sigmoid",
      "ddl-tc-noec/sigmoid",
      "ddl-cc/sigmoid/two_layer",
      "ddl-cc/sigmoid/per_sublayer",
      "ddl-tc/sigmoid/per_sublayer",
      "ddl-cc/sigmoid/eps_width",
      "ddl-cc/sigmoid/eps",
      "ddl-cc/sigmoid/scale",
  };
  return names;
}

// n independent normal numbers; the name makes each tensor of a test its own.
inline std::vector<double> normals(Index n, const std::string& name, double deviation = 1) {
  const Random random(20240601, name);
  std::vector<double> x(n);
  for (Index i = 0; i < n; ++i) x[i] = deviation * random.normal(static_cast<std::uint64_t>(i));
  return x;
}

}  // namespace ddl::ref
