#include "model/config_json.h"

#include "core/error.h"

namespace ddl {
namespace {

constexpr const char* kOwnModelType = "deep-delta";

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

Json model_config_json(const ModelConfig& config) {
  ModelConfig copy = config;
  Options options;
  copy.describe(options);
  Json json{{"model_type", kOwnModelType}, {"architectures", {"DeepDeltaForCausalLM"}}};
  json.update(common_keys(config));
  json["tie_word_embeddings"] = true;
  json["torch_dtype"] = "float32";
  json["ddl"] = options.to_json()["model"];
  return json;
}

ModelConfig parse_model_config(const std::string& text, const std::string& source_name) {
  const Json json = parse_json(text);
  if (!json.is_object()) throw UserError("{}: not a JSON object (truncated or damaged)", source_name);
  if (!json.contains("ddl") || !json["ddl"].is_object())
    throw UserError("{}: no \"ddl\" object, so it was not written by this program", source_name);
  ModelConfig config;
  Options options;
  config.describe(options);
  std::string toml;
  for (const auto& [key, value] : json["ddl"].items()) {
    if (!value.is_primitive() || value.is_null())
      throw UserError("{}: ddl.{} is {}, expected a value", source_name, key, to_line(value).substr(0, 80));
    toml += fmt::format("\"model\".{} = {}\n", to_line(Json(key)), to_line(value));
  }
  options.load_text(toml, source_name);
  config.check();
  const Json common = common_keys(config);
  for (const auto& [key, expected] : common.items())
    if (json.contains(key) && json[key] != expected)
      throw UserError("{}: {} is {}, but its \"ddl\" options give {}", source_name, key,
                      to_line(json[key]).substr(0, 80), to_line(expected));
  return config;
}

}  // namespace ddl
