// The additive baseline is also a model of other programs: HunYuan Dense (queries and keys are rotated, then
// normalised). These are the names that those programs give to its tensors.
#pragma once

#include <string>

#include "model/config.h"

namespace ddl {

enum class BaselineNames { kTransformers, kGguf };  // HunYuanDenseV1ForCausalLM; llama.cpp's hunyuan-dense

// From this project's name of a tensor: "transformer.h.0.ln_1.weight" -> "model.layers.0.input_layernorm.weight".
std::string baseline_name(const std::string& own, BaselineNames names);

// Why a model of this configuration is no HunYuan; empty if it is one.
std::string why_not_hunyuan(const ModelConfig& config);

}  // namespace ddl
