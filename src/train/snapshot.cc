#include "train/snapshot.h"

#include <algorithm>
#include <utility>

namespace ddl {

CheckpointArrays arrays_in_use(TrainableModel& model) {
  const Optimizer& optimizer = model.optimizer();
  return {model.weights().values().data(), optimizer.state(), optimizer.average()};
}

Snapshot::Snapshot(const ParamTable& table, const std::vector<NamedArray>& state, bool average) {
  arena_ = Arena::planned([&](Arena& arena) { arrays_ = take_snapshot(table, state, average, arena); });
}

CheckpointArrays take_snapshot(const ParamTable& table, std::vector<NamedArray> state, bool average,
                               Arena& arena) {
  const auto take = [&](Index floats) { return arena.take<float>("checkpoint copy", floats); };
  CheckpointArrays arrays{take(table.floats()), std::move(state), nullptr};
  for (NamedArray& array : arrays.state) array.data = take(array.floats);
  if (average) arrays.average = take(table.floats());
  return arrays;
}

void copy_arrays(const CheckpointArrays& from, const CheckpointArrays& to, const ParamTable& table) {
  std::copy_n(from.params, table.floats(), to.params);
  for (std::size_t i = 0; i < from.state.size(); ++i)
    std::copy_n(from.state[i].data, from.state[i].floats, to.state[i].data);
  if (from.average) std::copy_n(from.average, table.floats(), to.average);
}

}  // namespace ddl
