#include "model/hunyuan_layout.h"

#include <cmath>
#include <cstring>
#include <set>

#include "core/error.h"
#include "model/baseline_names.h"
#include "model/config_json.h"

namespace ddl {
namespace {

constexpr const char* kHunyuanType = "hunyuan_v1_dense";
constexpr const char* kHunyuanHead = "lm_head.weight";
constexpr const char* kHunyuanEmbedding = "model.embed_tokens.weight";
constexpr const char* kBaseWidth = "deep_delta_base_width";  // a key of ours, which transformers keep

std::string there(const Param& p) { return baseline_name(p.name, BaselineNames::kTransformers); }

// Keys with one value that this project's baseline has.
const Json& hunyuan_values() {
  static const Json values{{"hidden_act", "silu"},        {"rms_norm_eps", 1e-5},
                           {"attention_bias", false},     {"attention_dropout", 0.0},
                           {"tie_word_embeddings", true}, {"rope_scaling", nullptr},
                           {"pretraining_tp", 1}};
  return values;
}
// Keys that are read, and keys that change no logit of a model whose weights are given.
const std::set<std::string_view> kHunyuanRead = {
    "model_type",          "vocab_size",        "hidden_size",
    "intermediate_size",   "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "head_dim",          "max_position_embeddings",
    "rope_theta",          "rope_parameters",   kBaseWidth};
const std::set<std::string_view> kHunyuanHarmless = {
    "architectures",     "torch_dtype",  "dtype",         "transformers_version",
    "initializer_range", "use_cache",    "bos_token_id",  "eos_token_id",
    "pad_token_id",      "eod_token_id", "_name_or_path", "is_decoder"};

double rope_base_of(const Json& json, const JsonFields& fields) {
  double base =
      fields.has("rope_theta") && !json["rope_theta"].is_null() ? fields.number("rope_theta") : 10000;
  if (!fields.has("rope_parameters") || json["rope_parameters"].is_null()) return base;
  const JsonFields rope = fields.object("rope_parameters");
  for (const auto& [key, value] : json["rope_parameters"].items())
    if (key != "rope_theta" && !(key == "rope_type" && value == "default"))
      rope.refuse(key, "rope_theta and \"rope_type\": \"default\": positions are not scaled");
  return rope.has("rope_theta") ? rope.number("rope_theta") : base;
}

bool is_power_of_two(float scale) {
  int exponent;
  return std::frexp(scale, &exponent) == 0.5f;
}

}  // namespace

std::vector<float> scaled_final_norm(const Weights& weights) {
  const Param& norm = weights.table().find("ln_f.weight");
  const float* own = weights.values().data() + norm.offset;
  std::vector<float> scaled(own, own + norm.count);
  for (float& w : scaled) w *= weights.config().logit_scale();
  return scaled;
}

std::optional<Index> kept_base_width(const ModelConfig& config) {
  return config.mup && is_power_of_two(config.logit_scale()) ? std::optional(config.base_width)
                                                             : std::nullopt;
}

void use_kept_base_width(ModelConfig& config, const JsonFields& fields, const std::string& key) {
  if (!fields.has(key)) return;
  config.mup = true, config.base_width = fields.whole(key, 1, Index{1} << 20);
  if (!kept_base_width(config)) fields.refuse(key, fmt::format("{} times a power of two", config.width));
}

void take_scale_out_of_final_norm(Weights& weights) {
  const Param& norm = weights.table().find("ln_f.weight");
  float* own = weights.values().data() + norm.offset;
  for (Index i = 0; i < norm.count; ++i) own[i] /= weights.config().logit_scale();
}

HunyuanModel to_hunyuan(const Weights& weights, std::optional<Index> end_of_text) {
  const ModelConfig& c = weights.config();
  HunyuanModel out;
  const Json end = end_of_text ? Json(*end_of_text) : Json(nullptr);
  out.config = {{"model_type", kHunyuanType},
                {"architectures", {"HunYuanDenseV1ForCausalLM"}},
                {"vocab_size", c.vocab},
                {"hidden_size", c.width},
                {"intermediate_size", c.mlp_width()},
                {"num_hidden_layers", c.layers},
                {"num_attention_heads", c.heads},
                {"num_key_value_heads", c.heads},
                {"head_dim", c.head_size()},
                {"max_position_embeddings", c.context},
                {"rope_theta", c.rope_base},  // of transformers 4; the next line is for 5
                {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", c.rope_base}}},
                {"bos_token_id", end},
                {"eos_token_id", end},
                {"pad_token_id", nullptr},  // a number would take that token's embedding out of training
                {"use_cache", true},
                {"torch_dtype", "float32"}};
  out.config.update(hunyuan_values());
  if (const auto base = kept_base_width(c)) out.config[kBaseWidth] = *base;
  out.final_norm = scaled_final_norm(weights);
  for (const Param& p : weights.table().list())
    out.tensors.push_back(
        {there(p), "F32", p.shape,
         p.name == "ln_f.weight" ? out.final_norm.data() : weights.values().data() + p.offset});
  return out;
}

bool is_hunyuan_config(std::string_view config_json) {
  const Json json = parse_json(config_json);
  return json.is_object() && json.contains("model_type") && json["model_type"] == kHunyuanType;
}

ModelConfig from_hunyuan_config(std::string_view config_json, const std::string& source) {
  check_config_size(config_json, source);
  const Json json = parse_json(config_json);
  const JsonFields fields(json, source);
  for (const auto& [key, value] : json.items()) {
    if (kHunyuanRead.contains(key) || kHunyuanHarmless.contains(key)) continue;
    if (!hunyuan_values().contains(key))
      throw UserError(
          "{}: {} is {}, a key this program does not know. If it changes nothing the model computes, take it "
          "out; "
          "otherwise the model cannot be read",
          source, key, to_line(value).substr(0, 80));
    if (value != hunyuan_values()[key])
      throw UserError("{}: {} is {}; this program's baseline has {}", source, key,
                      to_line(value).substr(0, 80), to_line(hunyuan_values()[key]));
  }
  // What is left out has the default of transformers, which is not ours.
  for (const char* key : {"tie_word_embeddings", "num_key_value_heads", "head_dim"})
    if (!json.contains(key)) throw UserError("{}: {} is missing", source, key);
  ModelConfig c;
  c.use_residual(kBaselineRule);
  const auto size = [&](const char* key) { return fields.whole(key, 1, Index{1} << 40); };
  c.vocab = size("vocab_size"), c.width = size("hidden_size"), c.layers = size("num_hidden_layers");
  c.heads = size("num_attention_heads"), c.context = size("max_position_embeddings");
  if (const Index mlp = size("intermediate_size"); mlp != c.mlp_width()) c.mlp = mlp;
  if (size("num_key_value_heads") != c.heads)
    fields.refuse("num_key_value_heads", fmt::format("{}, as many as num_attention_heads", c.heads));
  c.rope_base = rope_base_of(json, fields);
  use_kept_base_width(c, fields, kBaseWidth);
  check_config(c, source);
  if (size("head_dim") != c.head_size())
    fields.refuse("head_dim", fmt::format("{}, hidden_size / num_attention_heads", c.head_size()));
  return c;
}

void check_hunyuan_weights(const ParamTable& table, const WeightFolder& weights) {
  std::set<std::string> known{kHunyuanHead};
  for (const Param& p : table.list()) {
    weights.expect(there(p), p.shape);
    known.insert(there(p));
  }
  for (const std::string& name : weights.names())
    if (!known.contains(name))
      throw UserError("{}: tensor '{}' has no place in this model", weights.path_of(name), name);
  if (weights.contains(kHunyuanHead))
    weights.expect(kHunyuanHead, table.find("transformer.wte.weight").shape);
}

void load_hunyuan_weights(Weights& weights, const WeightFolder& folder, const Exec& ex) {
  check_hunyuan_weights(weights.table(), folder);
  for (const Param& p : weights.table().list())
    folder.read(there(p), p.shape, weights.values().data() + p.offset);
  take_scale_out_of_final_norm(weights);
  if (folder.contains(kHunyuanHead)) {
    const Param& wte = weights.table().find("transformer.wte.weight");
    std::vector<float> head(static_cast<std::size_t>(wte.count));
    folder.read(kHunyuanHead, wte.shape, head.data());
    if (std::memcmp(head.data(), weights.values().data() + wte.offset, head.size() * sizeof(float)) != 0)
      throw UserError("{}: tensor '{}' differs from '{}'; this project has tied ones only",
                      folder.path_of(kHunyuanHead), kHunyuanHead, kHunyuanEmbedding);
  }
  weights.update_copy(ex);
}

}  // namespace ddl
