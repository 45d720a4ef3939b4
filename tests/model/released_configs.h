// config.json as the paper's released classes write it: every field of the class at its default, and what
// transformers adds. Sizes are those of the tests' small model.
#pragma once

#include <string>

#include "core/record.h"

namespace ddl {

// What every class has.
inline Json released_base() {
  return parse_json(R"({
    "architectures": ["GPT"], "model_type": "nanogpt-pro", "torch_dtype": "float32",
    "transformers_version": "4.57.0", "tie_word_embeddings": true, "is_decoder": true, "use_cache": true,
    "vocab_size": 11, "num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 8, "head_dim": 4,
    "block_size": 16, "bias": false, "dropout": 0.0, "scale_attn_by_inverse_layer_idx": false,
    "using_groupnorm": false, "use_output_gate": false, "use_qk_rmsnorm": true, "use_k_shift": false,
    "use_v_shift": false, "q_activation": null, "k_activation": null, "v_activation": null, "rope_ratio": 1.0,
    "embedding_init_std": 0.02, "hidden_init_std_factor": 0.5})");
}

// By the rule that the class is: baseline, ddl-dv1, ddl-tc, ddl-cc, ddl-tc-noec, ddl-cc-noec.
inline Json released_config(const std::string& rule) {
  Json j = released_base();
  if (rule == "baseline") {
    j.update(parse_json(R"({"rms_norm_eps": 1e-5, "rope_base": 10000.0})"));
    return j;
  }
  j.update(parse_json(R"({
    "ddl_k_eps": 1e-5, "ddl_beta_hidden_size": 128, "ddl_beta_single_linear": true, "ddl_v_sigmoid": true,
    "ddl_v_sigmoid_scale": 4.0, "ddl_beta_init": 1.0})"));
  if (rule == "ddl-dv1") {
    j.update(parse_json(R"({"ddl_v_dim1_constant": false, "ddl_v_dim1_constant_value": 2.0})"));
    return j;
  }
  j.update(parse_json(R"({
    "ddl_v_constant": false, "ddl_v_constant_value": 2.0, "ddl_value_channels": 3,
    "ddl_state_shortconv_kernel_size": 3, "ddl_state_read_init": null})"));
  if (rule.find("-cc") != rule.npos) j["ddl_state_dv_shortconv_causal"] = false;
  if (!rule.ends_with("-noec")) j["input_embed_shortconv_kernel_size"] = 4;
  return j;
}

}  // namespace ddl
