// What a model would cost on the native engine, without allocating it.
#pragma once

#include <cstddef>
#include <vector>

#include "core/arena.h"
#include "model/config.h"
#include "model/params.h"
#include "model/trainable.h"

namespace ddl {

// Floating-point operations per token, a multiply-add as two, exact from the shapes. Not counted: the
// pointwise work inside attention and the MLP (rotation, softmax, SwiGLU), which has functions whose
// operations are a matter of taste.
struct Flops {
  double linear = 0;     // the weights' matrix products
  double attention = 0;  // over the unmasked half
  double head = 0;
  double residual = 0;  // norms, compressors, branches, rewrite
  double total() const { return linear + attention + head + residual; }
};

struct ModelPlan {
  ParamTable table;
  std::vector<Arena::Entry> memory;  // parameters, gradients and activations of training
  std::size_t total_bytes = 0;
  Flops forward, backward;             // per token
  double recomputed = 0;               // FLOPs per token of what backward computes again to save memory
  Index cache_bytes_per_token = 0;     // attention's keys and values
  Index cache_bytes_per_sequence = 0;  // the residual rule's history
  double state_bytes_per_token = 0;    // what a sublayer's write and read of the residual stream go through
};
ModelPlan plan_model(const ModelConfig& config, BatchShape shape);

}  // namespace ddl
