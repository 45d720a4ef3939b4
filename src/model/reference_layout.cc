#include "model/reference_layout.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "model/residual/channel_conv.h"
#include "model/residual/registry.h"
#include "model/residual/rules.h"

namespace ddl {
namespace {

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

// A convolution of D taps with this read vector is one weight per feature and channel, exactly
// (channel_conv.h).
void pick_one_position(float* read_D, Index D) {
  std::fill_n(read_D, D, 0.0f);
  read_D[channel_conv_pad(D)] = 1;
}

// A channel compressor without one has a weight per feature and channel.
bool has_read_vector(const ParamTable& table, const Param& compressor) {
  const std::string name = without_weight(compressor.name) + "read";
  const std::vector<Param>& all = table.list();
  return std::any_of(all.begin(), all.end(), [&](const Param& p) { return p.name == name; });
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
         {"rope_base", c.rope_base},
         {"rms_norm_eps", c.norm_eps},
         {"embedding_init_std", c.embedding_start_std()},
         {"hidden_init_std_factor", c.hidden_std_factor},
         {"mup", c.mup},
         {"hidden_size_base", c.base_width}};
  if (c.mup) j["parameterization"] = "widthmuP";
  if (D == 0) return j;
  const auto& options = c.rule<DeltaOptions>();
  j.update({{"ddl_value_channels", D},
            {"ddl_k_eps", options.k_eps},
            {"ddl_beta_single_linear", options.gate == GateBranch::kLinear},
            {"ddl_beta_hidden_size", options.gate_hidden},
            {"ddl_beta_init", options.beta_init},
            {"ddl_v_sigmoid", true},
            {"ddl_v_sigmoid_scale", DeltaOptions::kValueScale},
            {kc > 0 ? "ddl_v_constant" : "ddl_v_dim1_constant", false}});
  if (kc > 0)
    j["ddl_state_shortconv_kernel_size"] = kc, j["ddl_state_read_init"] = 1.0 / static_cast<double>(D);
  if (embedding_conv) j["input_embed_shortconv_kernel_size"] = options.embed_kernel;
  return j;
}

}  // namespace

std::string why_not_in_reference(const ModelConfig& c) {
  if (const std::string reason = find_rule(c.residual()).why_not_in_reference(c); !reason.empty())
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
      kc = p.shape[0];
      taps_last(own(p.name, {C, kc}), data, kc, 1, C);
      if (!has_read_vector(weights.table(), p))
        pick_one_position(own(without_weight(p.name) + "read", {kc}), kc);
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

namespace {

struct ReleasedTensor {
  std::string name;
  std::vector<Index> shape;
};

// What the released code has in place of one of our tensors.
std::vector<ReleasedTensor> released_tensors(const ParamTable& table, const Param& p, Index C) {
  const std::string base = without_weight(p.name);
  if (p.name == kEmbeddingConv) return {{p.name, {C * p.shape[1], 1, p.shape[0]}}};
  if (is_compressor(p.name) && p.shape.size() == 3)  // over tokens
    return {{base + "shortconv.weight", {C * p.shape[1], p.shape[0]}}};
  if (is_compressor(p.name) && has_read_vector(table, p)) return {{p.name, {C, p.shape[0]}}};
  if (is_compressor(p.name)) return {{p.name, {C, p.shape[0]}}, {base + "read", {p.shape[0]}}};
  return {{p.name, p.shape}};
}

}  // namespace

void check_reference_weights(const ParamTable& table, const ModelConfig& config,
                             const WeightFolder& weights) {
  std::set<std::string> known;
  for (const Param& p : table.list())
    for (const ReleasedTensor& t : released_tensors(table, p, config.width)) {
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
  std::vector<float> released;
  for (const Param& p : weights.table().list()) {
    float* data = weights.values().data() + p.offset;
    const std::vector<ReleasedTensor> parts = released_tensors(weights.table(), p, C);
    if (parts[0].name == p.name && p.name != kEmbeddingConv && !is_compressor(p.name)) {  // the same in both
      folder.read(p.name, p.shape, data);
      continue;
    }
    // Taps come first here; the read vector next to them picks one position and says nothing more.
    released.resize(static_cast<std::size_t>(p.count));
    folder.read(parts[0].name, parts[0].shape, released.data());
    taps_first(data, released.data(), p.shape[0], p.shape.size() == 3 ? p.shape[1] : 1, C);
  }
  if (folder.contains(kHead)) {
    const Param& wte = weights.table().find(kEmbedding);
    released.resize(static_cast<std::size_t>(wte.count));
    folder.read(kHead, wte.shape, released.data());
    if (std::memcmp(released.data(), weights.values().data() + wte.offset,
                    static_cast<std::size_t>(wte.count) * sizeof(float)) != 0)
      throw UserError("{}: tensor '{}' differs from '{}'; this project has tied ones only",
                      folder.path_of(kHead), kHead, kEmbedding);
  }
  weights.update_copy(ex);
}

}  // namespace ddl
