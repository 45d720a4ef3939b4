// Scoring of trees of tokens (model/tree_scorer.h) on torch's devices: the native scorer's numbers to
// rounding; the last bits depend on what shares a pass.
#pragma once

#include <memory>

#include "model/tree_scorer.h"
#include "model/weights.h"
#include "torch/trainable.h"

namespace ddl {

std::unique_ptr<TreeScorer> make_torch_tree_scorer(const Weights& weights, const TreeShape& shape,
                                                   const TorchPlace& place);

}  // namespace ddl
