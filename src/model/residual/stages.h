// How parameters in front of a sublayer are called. Sublayer s of S: attention and MLP in turns; s = S is the
// readout in front of the head.
#pragma once

#include <string>
#include <vector>

#include "core/error.h"
#include "model/params.h"

namespace ddl {

// "transformer.h.0.NAME_attn.", "transformer.h.0.NAME_mlp."
inline std::string branch_prefix(const std::string& name, Index s) {
  return fmt::format("transformer.h.{}.{}_{}.", s / 2, name, s % 2 == 0 ? "attn" : "mlp");
}

// The norms in front of the S sublayers and of the head: their offsets.
inline std::vector<Index> add_stage_norms(ParamTable& table, Index S, Index C) {
  std::vector<Index> offsets;
  for (Index s = 0; s < S; ++s)
    offsets.push_back(table.add_norm(fmt::format("transformer.h.{}.ln_{}.weight", s / 2, s % 2 + 1), C));
  offsets.push_back(table.add_norm("ln_f.weight", C));
  return offsets;
}

}  // namespace ddl
