// The additive baseline is a model that other programs have, too: HunYuan Dense (queries and keys are rotated, then
// normalised). Its tensors under their names.
#pragma once

#include <string>

#include "model/config.h"

namespace ddl {

enum class BaselineNames { kTransformers, kGguf };  // HunYuanDenseV1ForCausalLM; llama.cpp's hunyuan-dense

// Of one of the baseline's own tensors: "transformer.h.0.ln_1.weight" -> "model.layers.0.input_layernorm.weight".
std::string baseline_name(const std::string& own, BaselineNames names);

// Why such a model is not one of those; empty where it is.
std::string why_not_hunyuan(const ModelConfig& config);

}  // namespace ddl
