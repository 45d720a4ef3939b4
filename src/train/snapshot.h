// A copy in memory of all arrays of a checkpoint, from which a thread writes while training goes on.
#pragma once

#include <span>
#include <vector>

#include "core/arena.h"
#include "model/optimizer/optimizer.h"

namespace ddl {

// The arrays of a checkpoint, wherever they are.
struct CheckpointArrays {
  float* params = nullptr;
  std::vector<NamedArray> state;
  float* average = nullptr;  // null where there is none
};

// Those in use.
CheckpointArrays arrays_in_use(std::span<float> params, const Optimizer& optimizer);
// The same kind of arrays, from `arena`.
CheckpointArrays take_snapshot(const ParamTable& table, const Optimizer& optimizer, Arena& arena);
// `from` into `to`, which has the same arrays.
void copy_arrays(const CheckpointArrays& from, const CheckpointArrays& to, const ParamTable& table);

}  // namespace ddl
