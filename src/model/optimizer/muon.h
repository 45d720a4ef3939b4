// Muon: the momentum of a hidden matrix, made orthogonal, is its update (Jordan et al., 2024). Embedding,
// vectors and matrices of one row or column are left to AdamW.
#pragma once

#include "model/optimizer/adamw.h"

namespace ddl {

struct MuonOptions : OptionSetOf<MuonOptions> {
  // x (a + b x^2 + c x^4) takes singular values from (0, 1] towards 1, small ones by a factor of a. After five
  // times those above about 0.01 lie between the polynomial's extremes, 0.68 and 1.20.
  static constexpr float kA = 3.4445f, kB = -4.7750f, kC = 2.0315f;

  // An orthogonal matrix has entries of root mean square 1 / sqrt(max(rows, cols)); AdamW's updates were
  // measured to have about 0.2 (Liu et al., 2025). So scaled, a learning rate and a weight decay mean the same
  // to both.
  static constexpr double kAdamWRms = 0.2;

  // A mean square this small is lost in f32: such a matrix has no direction to go.
  static constexpr double kSmallestRms = 1e-15;

  double momentum = 0.95;
  Index newton_schulz = 5;
  AdamWOptions rest;
  void describe(Options& options) override;
};

OptimizerEntry muon_entry();

}  // namespace ddl
