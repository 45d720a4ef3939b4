// train.zero: each rank has the optimizer's state of its own tensors only (state_owners), updates those, and
// sends them to the others. Files know nothing of it: a checkpoint holds the state of all.
#pragma once

#include <span>
#include <vector>

#include "dist/comm.h"
#include "model/optimizer/optimizer.h"
#include "train/run_config.h"

namespace ddl {

// The state's arrays as one rank alone would have them: which tensors, and where. They have no memory.
std::vector<NamedArray> whole_state(const RunConfig& config, const ParamTable& table);

// The arrays of `whole` with those tensors that `own` has in `own`'s memory; the others have none (null).
struct StateTensor {
  std::string array;
  Index param = 0, count = 0;
  float* data = nullptr;
};
std::vector<StateTensor> locate_state(const std::vector<NamedArray>& whole,
                                      const std::vector<NamedArray>& own, const ParamTable& table);

// Every tensor's state from the rank that has it into `to`, which has memory on rank 0 alone. All ranks call it.
void gather_state(Comm& comm, const ParamTable& table, const std::vector<NamedArray>& own,
                  const std::vector<NamedArray>& to);

// Every tensor from the rank that updates it to all others.
void exchange_parameters(Comm& comm, const ParamTable& table, std::span<float> params);

}  // namespace ddl
