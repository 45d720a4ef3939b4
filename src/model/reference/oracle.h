// A model's configuration and weights as the oracle (src/ref) takes them.
#pragma once

#include "model/config.h"
#include "model/weights.h"
#include "ref/model.h"

namespace ddl {

inline ref::Shape oracle_shape(const ModelConfig& config) {
  return {.layers = config.layers,
          .heads = config.heads,
          .head_size = config.head_size(),
          .width = config.width,
          .mlp = config.mlp_width(),
          .vocab = config.vocab,
          .logit_scale = static_cast<double>(config.logit_scale()),
          .rope_base = config.rope_base,
          .norm_eps = config.norm_eps};
}

inline ref::Parameters<double> oracle_parameters(const Weights& weights) {
  ref::Parameters<double> parameters;
  for (const Param& p : weights.table().list()) {
    const float* values = weights.values().data() + p.offset;
    parameters[p.name].assign(values, values + p.count);
  }
  return parameters;
}

}  // namespace ddl
