#include "model/reference_layout.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "kernels/residual_pass.h"
#include "kernels/short_conv.h"
#include "model/config_json.h"
#include "model/residual/registry.h"
#include "model/residual/rules.h"

namespace ddl {
namespace {

constexpr const char* kReferenceModelType = "nanogpt-pro";
constexpr const char* kEmbedding = "transformer.wte.weight";
constexpr const char* kHead = "lm_head.weight";
constexpr const char* kEmbeddingConv = "input_embed.conv.weight";

bool is_compressor(const std::string& name) {
  return name.ends_with("compress.weight") || name == "readout.weight";
}

// "readout.weight" -> "readout."
std::string without_weight(const std::string& name) { return name.substr(0, name.rfind('.') + 1); }

// Ours [E][D][C], released [C D][E] (channel index i D + j): tap e of feature i and channel j.
void taps_last(float* released, const float* ours_EDC, Index E, Index D, Index C) {
  for (Index e = 0; e < E; ++e)
    for (Index j = 0; j < D; ++j)
      for (Index i = 0; i < C; ++i) released[(i * D + j) * E + e] = ours_EDC[(e * D + j) * C + i];
}
void taps_first(float* ours_EDC, const float* released, Index E, Index D, Index C) {
  for (Index e = 0; e < E; ++e)
    for (Index j = 0; j < D; ++j)
      for (Index i = 0; i < C; ++i) ours_EDC[(e * D + j) * C + i] = released[(i * D + j) * E + e];
}

// x_i = sum_j read_j sum_m w_im X_i,(j - pad + m) = sum_n mix_ni X_in   with
//   mix_ni = sum_j read_j w_i,(n - j + pad),   pad = (kc - 1) / 2,   terms out of range zero
void fold(float* mix_DC, const float* w, const float* read_D, Index kc, Index D, Index C) {
  const Index pad = (kc - 1) / 2;
  for (Index n = 0; n < D; ++n)
    for (Index i = 0; i < C; ++i) {
      double sum = 0;
      for (Index j = 0; j < D; ++j) {
        const Index m = n - j + pad;
        if (m >= 0 && m < kc) sum += double{read_D[j]} * double{w[i * kc + m]};
      }
      mix_DC[n * C + i] = static_cast<float>(sum);
    }
}
// The other way with kc = D and the read vector that picks j = pad: then mix_ni = w_in, exactly.
void unfold(float* w, float* read_D, const float* mix_DC, Index D, Index C) {
  for (Index n = 0; n < D; ++n)
    for (Index i = 0; i < C; ++i) w[i * D + n] = mix_DC[n * C + i];
  std::fill_n(read_D, D, 0.0f);
  read_D[(D - 1) / 2] = 1;
}

Json reference_config(const ModelConfig& c, Index D, bool embedding_conv, Index kc) {
  Json j{{"model_type", kReferenceModelType},
         {"vocab_size", c.vocab},
         {"num_hidden_layers", c.layers},
         {"num_attention_heads", c.heads},
         {"hidden_size", c.width},
         {"head_dim", c.head_size()},
         {"block_size", c.context},
         {"use_qk_rmsnorm", true},
         {"rope_ratio", 1.0},
         {"embedding_init_std", c.embedding_std},
         {"hidden_init_std_factor", c.hidden_std_factor},
         {"mup", c.mup},
         {"hidden_size_base", c.base_width}};
  if (D == 0) return j;
  const auto& options = c.rule<DeltaOptions>();
  j.update({{"ddl_value_channels", D},
            {"ddl_k_eps", options.k_eps},
            {"ddl_beta_single_linear", options.gate == "linear"},
            {"ddl_beta_hidden_size", options.gate_hidden},
            {"ddl_beta_init", options.beta_init},
            {"ddl_v_sigmoid", true},
            {"ddl_v_sigmoid_scale", DeltaOptions::kValueScale},
            {"ddl_v_constant", false},
            {"ddl_v_constant_value", 2.0}});
  if (kc > 0)
    j["ddl_state_shortconv_kernel_size"] = kc, j["ddl_state_read_init"] = 1.0 / static_cast<double>(D);
  if (embedding_conv) j["input_embed_shortconv_kernel_size"] = options.embed_kernel;
  return j;
}

}  // namespace

std::string why_not_in_reference(const ModelConfig& c) {
  if (const std::string reason = find_rule(c.residual()).not_in_reference(c); !reason.empty())
    return fmt::format("{}: {}", c.residual(), reason);
  if (c.mlp_width() != 8 * c.width / 3)
    return fmt::format("model.mlp is {}; its MLP is floor(8/3 width) = {} wide", c.mlp_width(),
                       8 * c.width / 3);
  return "";
}

ReferenceModel to_reference(const Weights& weights) {
  const ModelConfig& c = weights.config();
  if (const std::string reason = why_not_in_reference(c); !reason.empty())
    throw UserError("the released code cannot express this model: {}; --layout own exports it as it is",
                    reason);
  ReferenceModel out;
  const Index C = c.width;
  Index D = 0, kc = 0;
  bool embedding_conv = false;
  const auto own = [&](std::string name, std::vector<Index> shape) {
    Index count = 1;
    for (const Index extent : shape) count *= extent;
    float* data = out.storage.emplace_back(static_cast<std::size_t>(count)).data();
    out.tensors.push_back({std::move(name), "F32", std::move(shape), data});
    return data;
  };
  for (const Param& p : weights.table().list()) {
    const float* data = weights.values().data() + p.offset;
    if (p.name.ends_with("v_proj.weight")) D = p.shape[0];
    if (p.name == kEmbeddingConv) {
      embedding_conv = true;
      taps_last(own(p.name, {C * p.shape[1], 1, p.shape[0]}), data, p.shape[0], p.shape[1], C);
    } else if (is_compressor(p.name) && p.shape.size() == 3) {  // over tokens
      const std::string base = without_weight(p.name);
      kc = p.shape[0];
      taps_last(own(base + "shortconv.weight", {C * p.shape[1], kc}), data, kc, p.shape[1], C);
    } else if (is_compressor(p.name)) {  // over channels
      const std::string base = without_weight(p.name);
      kc = p.shape[0];
      float* w = own(p.name, {C, kc});
      unfold(w, own(base + "read", {kc}), data, kc, C);
    } else {
      out.tensors.push_back({p.name, "F32", p.shape, data});
    }
  }
  out.config = reference_config(c, D, embedding_conv, kc);
  return out;
}

bool is_reference_config(std::string_view config_json) {
  const Json json = parse_json(config_json);
  return json.is_object() && json.contains("model_type") && json["model_type"] == kReferenceModelType;
}

ModelConfig from_reference_config(std::string_view config_json, const std::string& source,
                                  const WeightFolder& weights) {
  const Json json = parse_json(config_json);
  if (!json.is_object() || !json.contains("model_type") || json["model_type"] != kReferenceModelType)
    throw UserError("{}: expected \"model_type\": \"{}\"", source, kReferenceModelType);
  const auto integer = [&](const char* key) {
    if (!json.contains(key) || !json[key].is_number_integer() || json[key].get<Index>() < 1)
      throw UserError("{}: {} is {}, expected a whole number from 1", source, key,
                      json.contains(key) ? to_line(json[key]).substr(0, 80) : "missing");
    return json[key].get<Index>();
  };
  const auto number = [&](const char* key, double otherwise) {
    if (!json.contains(key) || json[key].is_null()) return otherwise;
    if (!json[key].is_number())
      throw UserError("{}: {} is {}, expected a number", source, key, to_line(json[key]).substr(0, 80));
    return json[key].get<double>();
  };
  const auto flag = [&](const char* key, bool otherwise) {
    if (!json.contains(key) || json[key].is_null()) return otherwise;
    if (!json[key].is_boolean())
      throw UserError("{}: {} is {}, expected true or false", source, key, to_line(json[key]).substr(0, 80));
    return json[key].get<bool>();
  };
  const auto refuse = [&](const std::string& what) {
    throw UserError("{}: {}, which this project does not have", source, what);
  };

  ModelConfig c;
  c.vocab = integer("vocab_size"), c.layers = integer("num_hidden_layers");
  c.heads = integer("num_attention_heads"), c.width = integer("hidden_size"),
  c.context = integer("block_size");
  if (json.contains("head_dim") && integer("head_dim") * c.heads != c.width)
    refuse("head_dim times num_attention_heads is not hidden_size");
  if (!flag("use_qk_rmsnorm", true)) refuse("use_qk_rmsnorm is false");
  if (number("rope_ratio", 1) != 1) refuse("rope_ratio is not 1");
  c.embedding_std = number("embedding_init_std", c.embedding_std);
  c.hidden_std_factor = number("hidden_init_std_factor", c.hidden_std_factor);
  c.mup = flag("mup", false);
  if (json.contains("hidden_size_base")) c.base_width = integer("hidden_size_base");

  // The tensors say which rule it is, and their shapes which sizes.
  const std::string block = "transformer.h.0.";
  const bool delta = weights.contains(block + "ddl_attn.v_proj.weight");
  const bool conv = weights.contains(kEmbeddingConv);
  const bool token = weights.contains(block + "compress.shortconv.weight");
  const bool channel = weights.contains(block + "compress.weight");
  std::string rule = !delta ? "baseline" : token ? "ddl-tc" : channel ? "ddl-cc" : "ddl-dv1";
  if ((token || channel) && !conv) rule += "-noec";
  c.use_residual(rule);
  if (!delta) {
    check_config(c, source);
    return c;
  }
  auto& options = c.rule<DeltaOptions>();
  options.compressor = "block";
  const auto extent = [&](const std::string& name, std::size_t dimensions, std::size_t which) {
    const TensorInfo& t = weights.info(name);
    if (t.shape.size() != dimensions)
      throw UserError("{}: tensor '{}' is {}, expected {} dimensions", weights.path_of(name), name,
                      describe_tensor(t.dtype, t.shape), dimensions);
    return t.shape[which];
  };
  options.channels = extent(block + "ddl_attn.v_proj.weight", 2, 0);
  if (options.channels < 1 || options.channels > kMaxChannels)
    refuse(fmt::format("{} value channels", options.channels));
  if (!token && !channel && options.channels != 1) refuse("an expanded state without a compressor");
  if (conv) options.embed_kernel = extent(kEmbeddingConv, 3, 2);
  if (token) options.state_kernel = extent(block + "compress.shortconv.weight", 2, 1);
  options.gate = weights.contains(block + "ddl_attn.beta.weight") ? "linear" : "two-layer";
  if (options.gate == "two-layer") options.gate_hidden = extent(block + "ddl_attn.beta_in.weight", 2, 0);
  options.value = "sigmoid";
  if (!flag("ddl_v_sigmoid", true))
    refuse("ddl_v_sigmoid is false (a linear value of the un-normalised input)");
  if (flag("ddl_v_constant", false)) refuse("ddl_v_constant is true");
  if (number("ddl_v_sigmoid_scale", DeltaOptions::kValueScale) != DeltaOptions::kValueScale)
    refuse("ddl_v_sigmoid_scale is not 4");
  options.k_eps = number("ddl_k_eps", options.k_eps);
  options.beta_init = number("ddl_beta_init", options.beta_init);
  check_config(c, source);
  return c;
}

namespace {

struct ReleasedTensor {
  std::string name;
  std::vector<Index> shape;
};

// What the released code has in place of one of our tensors.
std::vector<ReleasedTensor> released_tensors(const Param& p, Index C, const WeightFolder& weights) {
  const std::string base = without_weight(p.name);
  if (p.name == kEmbeddingConv) return {{p.name, {C * p.shape[1], 1, p.shape[0]}}};
  if (is_compressor(p.name) && p.shape.size() == 3)  // over tokens
    return {{base + "shortconv.weight", {C * p.shape[1], p.shape[0]}}};
  if (is_compressor(p.name)) {  // over channels; its kernel may have any length
    const std::vector<Index>& found = weights.info(p.name).shape;
    return {{p.name, {C, found.size() == 2 ? found[1] : p.shape[0]}}, {base + "read", {p.shape[0]}}};
  }
  return {{p.name, p.shape}};
}

}  // namespace

void check_reference_weights(const ParamTable& table, const ModelConfig& config,
                             const WeightFolder& weights) {
  std::set<std::string> known;
  for (const Param& p : table.list())
    for (const ReleasedTensor& t : released_tensors(p, config.width, weights)) {
      weights.expect(t.name, t.shape);
      known.insert(t.name);
    }
  for (const std::string& name : weights.names())
    if (!known.contains(name) && name != kHead)
      throw UserError("{}: tensor '{}' has no place in this model", weights.path_of(name), name);
  if (weights.contains(kHead)) weights.expect(kHead, table.find(kEmbedding).shape);
}

void load_reference_weights(Weights& weights, const WeightFolder& folder, const Exec& ex) {
  check_reference_weights(weights.table(), weights.config(), folder);
  const Index C = weights.config().width;
  std::vector<float> released[2];
  for (const Param& p : weights.table().list()) {
    float* data = weights.values().data() + p.offset;
    const std::vector<ReleasedTensor> parts = released_tensors(p, C, folder);
    if (parts.size() == 1 && parts[0].name == p.name && p.name != kEmbeddingConv) {  // the same in both
      folder.read(p.name, p.shape, data);
      continue;
    }
    for (std::size_t i = 0; i < parts.size(); ++i) {
      released[i].resize(static_cast<std::size_t>(folder.info(parts[i].name).count));
      folder.read(parts[i].name, parts[i].shape, released[i].data());
    }
    if (parts.size() == 2)
      fold(data, released[0].data(), released[1].data(), parts[0].shape[1], p.shape[0], C);
    else
      taps_first(data, released[0].data(), p.shape[0], p.shape[1], C);
  }
  if (folder.contains(kHead)) {
    const Param& wte = weights.table().find(kEmbedding);
    released[0].resize(static_cast<std::size_t>(wte.count));
    folder.read(kHead, wte.shape, released[0].data());
    if (std::memcmp(released[0].data(), weights.values().data() + wte.offset,
                    static_cast<std::size_t>(wte.count) * sizeof(float)) != 0)
      throw UserError("{}: tensor '{}' differs from '{}'; this project has tied ones only",
                      folder.path_of(kHead), kHead, kEmbedding);
  }
  weights.update_copy(ex);
}

}  // namespace ddl
