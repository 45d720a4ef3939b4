// Muon: the momentum of a hidden matrix, made orthogonal, is its update (Jordan et al., 2024). Embedding,
// vectors and matrices of one row or column are left to AdamW.
#pragma once

#include "model/optimizer/adamw.h"

namespace ddl {

struct MuonOptions : OptionSetOf<MuonOptions> {
  double momentum = 0.95;
  Index newton_schulz = 5;
  AdamWOptions rest;
  void describe(Options& options) override;
};

OptimizerEntry muon_entry();

}  // namespace ddl
