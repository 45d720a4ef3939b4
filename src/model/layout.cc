#include "model/layout.h"

#include <cmath>

namespace ddl {

TransformerLayout add_transformer_params(ParamTable& table, const ModelConfig& config) {
  const Index C = config.width, F = config.mlp_width(), K = config.head_size();
  const double hidden_std = config.hidden_std_factor / std::sqrt(static_cast<double>(C));
  const Init hidden = Init::normal(hidden_std);
  const Init output = Init::normal(hidden_std / std::sqrt(static_cast<double>(config.layers)));
  TransformerLayout layout;
  layout.wte =
      table.add_embedding("transformer.wte.weight", config.vocab, C, Init::normal(config.embedding_std));
  for (Index i = 0; i < config.layers; ++i) {
    const std::string block = fmt::format("transformer.h.{}.", i);
    TransformerLayout::Layer p;
    p.qkv = table.add_matrix(block + "attn.c_q.weight", C, C, hidden);
    table.add_matrix(block + "attn.c_k.weight", C, C, hidden, ParamTable::kJoined);
    table.add_matrix(block + "attn.c_v.weight", C, C, hidden, ParamTable::kJoined);
    p.q_norm = table.add(block + "attn.q_rms.weight", {K}, Init::constant(1));
    p.k_norm = table.add(block + "attn.k_rms.weight", {K}, Init::constant(1));
    p.attn_out = table.add_matrix(block + "attn.c_proj.weight", C, C, output);
    p.mlp_in = table.add_matrix(block + "mlp.c_fc1.weight", F, C, hidden);
    table.add_matrix(block + "mlp.c_fc2.weight", F, C, hidden, ParamTable::kJoined);
    p.mlp_out = table.add_matrix(block + "mlp.c_proj.weight", C, F, output);
    layout.layers.push_back(p);
  }
  return layout;
}

}  // namespace ddl
