// A copy in memory of all arrays of a checkpoint, from which a thread writes while training continues.
#pragma once

#include <vector>

#include "core/arena.h"
#include "model/trainable.h"

namespace ddl {

// The arrays of a checkpoint, wherever they are.
struct CheckpointArrays {
  float* params = nullptr;
  std::vector<NamedArray> state;
  float* average = nullptr;  // null where there is none
};

// Those in use.
CheckpointArrays arrays_in_use(TrainableModel& model);
// The same kind of arrays, from `arena`.
CheckpointArrays take_snapshot(const ParamTable& table, std::vector<NamedArray> state, bool average,
                               Arena& arena);
// `from` into `to`, which has the same arrays.
void copy_arrays(const CheckpointArrays& from, const CheckpointArrays& to, const ParamTable& table);

// Such arrays with memory of their own.
class Snapshot {
 public:
  // `state`: which arrays; where they are does not matter.
  Snapshot(const ParamTable& table, const std::vector<NamedArray>& state, bool average);
  const CheckpointArrays& arrays() const { return arrays_; }
  std::size_t bytes() const { return arena_.used_bytes(); }

 private:
  Arena arena_ = Arena::measuring();
  CheckpointArrays arrays_;
};

}  // namespace ddl
