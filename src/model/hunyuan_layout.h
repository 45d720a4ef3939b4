// The additive baseline as HunYuanDenseV1ForCausalLM of Hugging Face transformers, both ways. muP's scale of the logits
// becomes part of the final norm there.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/exec.h"
#include "core/json.h"
#include "core/json_fields.h"
#include "io/safetensors.h"
#include "model/weight_folder.h"
#include "model/weights.h"

namespace ddl {

struct HunyuanModel {
  Json config;                         // config.json
  std::vector<TensorToWrite> tensors;  // lie in the weights, which must outlive this
  std::vector<float> final_norm;       // but for this one
};
// The configuration must be one for which why_not_hunyuan (baseline_names.h) is empty.
HunyuanModel to_hunyuan(const Weights& weights, std::optional<Index> end_of_text);

// logit_scale * ln_f, what the final norm is in a program that does not scale logits.
std::vector<float> scaled_final_norm(const Weights& weights);
// The base width that goes along, so that muP and the norm's own bits come back: where the scale is a power of two.
// With any other scale, several norms have one rounded product. Then none goes along, and the model comes back
// without muP, as it computes there.
std::optional<Index> kept_base_width(const ModelConfig& config);
// The way back: muP with the base width that `key` has, and the norm without the scale.
void use_kept_base_width(ModelConfig& config, const JsonFields& fields, const std::string& key);
void take_scale_out_of_final_norm(Weights& weights);

bool is_hunyuan_config(std::string_view config_json);
// Throws UserError where a value is not the one that this project's baseline has, or a key is unknown.
ModelConfig from_hunyuan_config(std::string_view config_json, const std::string& source_name);
// Whether the folder's tensors fill that model; throws UserError where not.
void check_hunyuan_weights(const ParamTable& table, const WeightFolder& weights);
void load_hunyuan_weights(Weights& weights, const WeightFolder& folder, const Exec& ex);

}  // namespace ddl
