// The CPU engine: this project's own kernels, oneDNN's matrix products.
#pragma once

#include <cstdint>
#include <memory>

#include "model/engine.h"

namespace ddl {

const Engine& native_engine();

std::unique_ptr<TrainableModel> make_native_trainable(const ModelConfig& config, BatchShape shape,
                                                      const OptimizerConfig& optimizer, std::uint64_t seed,
                                                      const Exec& ex);
std::unique_ptr<Decoder> make_native_decoder(const Weights& weights, const DecoderShape& shape,
                                             const Exec& ex);
std::unique_ptr<TreeScorer> make_native_tree_scorer(const Weights& weights, const TreeShape& shape,
                                                    const Exec& ex);

}  // namespace ddl
