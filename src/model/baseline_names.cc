#include "model/baseline_names.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "core/error.h"

namespace ddl {
namespace {

struct Row {
  std::string_view own, transformers, gguf;
};

constexpr Row kWhole[] = {
    {"transformer.wte.weight", "model.embed_tokens.weight", "token_embd.weight"},
    {"ln_f.weight", "model.norm.weight", "output_norm.weight"},
};

// Behind "transformer.h.N.", "model.layers.N." and "blk.N.". The MLP is silu(gate x) * (up x), then down.
constexpr Row kOfBlock[] = {
    {"ln_1.weight", "input_layernorm.weight", "attn_norm.weight"},
    {"attn.c_q.weight", "self_attn.q_proj.weight", "attn_q.weight"},
    {"attn.c_k.weight", "self_attn.k_proj.weight", "attn_k.weight"},
    {"attn.c_v.weight", "self_attn.v_proj.weight", "attn_v.weight"},
    {"attn.q_rms.weight", "self_attn.query_layernorm.weight", "attn_q_norm.weight"},
    {"attn.k_rms.weight", "self_attn.key_layernorm.weight", "attn_k_norm.weight"},
    {"attn.c_proj.weight", "self_attn.o_proj.weight", "attn_output.weight"},
    {"ln_2.weight", "post_attention_layernorm.weight", "ffn_norm.weight"},
    {"mlp.c_fc1.weight", "mlp.gate_proj.weight", "ffn_gate.weight"},
    {"mlp.c_fc2.weight", "mlp.up_proj.weight", "ffn_up.weight"},
    {"mlp.c_proj.weight", "mlp.down_proj.weight", "ffn_down.weight"},
};

constexpr std::string_view kBlock = "transformer.h.";

template <std::size_t N>
std::string_view look_up(const Row (&rows)[N], std::string_view own, BaselineNames names) {
  const Row* found =
      std::find_if(std::begin(rows), std::end(rows), [&](const Row& r) { return r.own == own; });
  DDL_CHECK(found != std::end(rows), "the baseline has no tensor '{}'", own);
  return names == BaselineNames::kGguf ? found->gguf : found->transformers;
}

}  // namespace

std::string baseline_name(const std::string& own, BaselineNames names) {
  if (!own.starts_with(kBlock)) return std::string(look_up(kWhole, own, names));
  const std::size_t dot = own.find('.', kBlock.size());
  const std::string number = own.substr(kBlock.size(), dot - kBlock.size());
  return fmt::format("{}{}.{}", names == BaselineNames::kGguf ? "blk." : "model.layers.", number,
                     look_up(kOfBlock, std::string_view(own).substr(dot + 1), names));
}

std::string why_not_hunyuan(const ModelConfig& config) {
  if (config.residual() != kBaselineRule)
    return fmt::format("its residual rule is {}, and only the additive residual (baseline) has a place there",
                       config.residual());
  if (config.norm_eps != 1e-5)
    return fmt::format("model.norm_eps is {}; queries and keys have 1e-5, and there is one number for both",
                       config.norm_eps);
  return "";
}

}  // namespace ddl
