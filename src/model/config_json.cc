#include "model/config_json.h"

#include "core/arena.h"
#include "core/error.h"

namespace ddl {
namespace {

constexpr std::size_t kLargestConfig = 1 << 18;  // real ones have a few kilobytes
constexpr const char* kOwnModelType = "deep-delta";
constexpr const char* kTransformersModelType = "deep_delta";  // a name that is also one in Python
constexpr const char* kStoredFormat = "ddl_weights";

Json common_keys(const ModelConfig& c) {
  return Json{{"vocab_size", c.vocab},
              {"hidden_size", c.width},
              {"num_hidden_layers", c.layers},
              {"num_attention_heads", c.heads},
              {"head_dim", c.head_size()},
              {"intermediate_size", c.mlp_width()},
              {"max_position_embeddings", c.context}};
}

}  // namespace

Json model_config_json(const ModelConfig& config, WeightFormat format) {
  ModelConfig copy = config;
  Options options;
  copy.describe(options);
  Json json{{"model_type", kOwnModelType}, {"architectures", {"DeepDeltaForCausalLM"}}};
  json.update(common_keys(config));
  json["tie_word_embeddings"] = true;
  json["torch_dtype"] = format == WeightFormat::kBf16 ? "bfloat16" : "float32";
  if (format != WeightFormat::kF32) json[kStoredFormat] = info(format).name;
  json["ddl"] = options.to_json()["model"];
  json["ddl"].erase("engine");  // what computes is no part of what the model is
  return json;
}

Json transformers_config_json(const ModelConfig& config, std::optional<Index> end_of_text) {
  Json json = model_config_json(config);
  json["model_type"] = kTransformersModelType;
  json["auto_map"] = {{"AutoConfig", "configuration_deep_delta.DeepDeltaConfig"},
                      {"AutoModelForCausalLM", "modeling_deep_delta.DeepDeltaForCausalLM"}};
  if (end_of_text) json["bos_token_id"] = *end_of_text, json["eos_token_id"] = *end_of_text;
  return json;
}

bool is_transformers_config(std::string_view config_json) {
  const Json json = parse_json(config_json);
  return json.is_object() && json.contains("model_type") && json["model_type"] == kTransformersModelType;
}

WeightFormat parse_stored_format(const std::string& text, const std::string& source_name) {
  const Json json = parse_json(text);
  if (!json.is_object() || !json.contains(kStoredFormat)) return WeightFormat::kF32;
  const Json& name = json[kStoredFormat];
  try {
    return parse_weight_format(name.is_string() ? name.get<std::string>() : to_line(name).substr(0, 80));
  } catch (const UserError& error) {
    throw UserError("{}: {}: {}", source_name, kStoredFormat, error.what());
  }
}

Json generation_config_json(const ModelConfig& config, std::optional<Index> end_of_text) {
  Json json{{"max_length", config.context}};
  if (end_of_text) json["bos_token_id"] = *end_of_text, json["eos_token_id"] = *end_of_text;
  return json;
}

void check_config_size(std::string_view text, const std::string& source_name) {
  if (text.size() > kLargestConfig)
    throw UserError("{}: {} is too large for a model's configuration (at most {})", source_name,
                    format_bytes(text.size()), format_bytes(kLargestConfig));
}

void check_config(const ModelConfig& config, const std::string& source_name) {
  ModelConfig copy = config;
  Options options;
  copy.describe(options);
  options.check(source_name);
  try {
    copy.check();
  } catch (const UserError& error) {
    throw UserError("{}: {}", source_name, error.what());
  }
}

ModelConfig parse_model_config(const std::string& text, const std::string& source_name) {
  check_config_size(text, source_name);
  const Json json = parse_json(text);
  if (!json.is_object()) throw UserError("{}: not a JSON object (empty, truncated or damaged)", source_name);
  if (!json.contains("ddl") || !json["ddl"].is_object())
    throw UserError(
        "{}: expected \"ddl\" (this program's), or \"model_type\": \"nanogpt-pro\" (the paper's released "
        "code) or "
        "\"hunyuan_v1_dense\" (the baseline in transformers)",
        source_name);
  ModelConfig config;
  if (const Json& own = json["ddl"]; own.contains("residual") && own["residual"].is_string()) {
    try {
      config.use_residual(own["residual"].get<std::string>());
    } catch (const UserError& error) {
      throw UserError("{}: {}", source_name, error.what());
    }
  }
  Options options;
  config.describe(options);
  // Version 0.1 stored the options of all rules with every model.
  options.load_json(Json{{"model", json["ddl"]}}, source_name, Options::Refused::kSkip);
  check_config(config, source_name);
  const Json common = common_keys(config);
  for (const auto& [key, expected] : common.items())
    if (json.contains(key) && json[key] != expected)
      throw UserError("{}: {} is {}, but its \"ddl\" options give {}", source_name, key,
                      to_line(json[key]).substr(0, 80), to_line(expected));
  return config;
}

}  // namespace ddl
