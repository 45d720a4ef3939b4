// Which tensors a Transformer has besides those of its residual rule, and where they lie: one list for
// training and for decoding.
#pragma once

#include <vector>

#include "model/config.h"
#include "model/params.h"

namespace ddl {

struct TransformerLayout {
  // Offsets into the parameter array. qkv is one matrix [3C, C], mlp_in one [2F, C].
  struct Layer {
    Index qkv = 0, q_norm = 0, k_norm = 0, attn_out = 0, mlp_in = 0, mlp_out = 0;
  };
  Index wte = 0;
  std::vector<Layer> layers;
};

// Adds the tensors; the residual rule's come after them.
TransformerLayout add_transformer_params(ParamTable& table, const ModelConfig& config);

}  // namespace ddl
