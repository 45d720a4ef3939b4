#include "train/shared_state.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/arena.h"

namespace ddl {

std::vector<NamedArray> whole_state(const RunConfig& config, const ParamTable& table) {
  OptimizerConfig alone = config.train.optimizer;
  alone.share = {};
  Arena measured = Arena::measuring();
  return make_optimizer(table, config.model.hidden_lr_factor(), alone, measured)->state();
}

std::vector<StateTensor> locate_state(const std::vector<NamedArray>& whole,
                                      const std::vector<NamedArray>& own, const ParamTable& table) {
  std::map<std::pair<std::string, Index>, float*> here;
  for (const NamedArray& array : own)
    if (array.data)
      for (const NamedArray::Tensor& t : array.tensors) here[{array.name, t.param}] = array.data + t.offset;
  std::vector<StateTensor> all;
  for (const NamedArray& array : whole)
    for (const NamedArray::Tensor& t : array.tensors) {
      const auto found = here.find({array.name, t.param});
      all.push_back(
          {array.name, t.param, table.list()[t.param].count, found == here.end() ? nullptr : found->second});
    }
  return all;
}

void gather_state(Comm& comm, const ParamTable& table, const std::vector<NamedArray>& own,
                  const std::vector<NamedArray>& to) {
  const std::vector<int> owners = state_owners(table, comm.ranks());
  const std::vector<StateTensor> parts = locate_state(to, own, table);
  const std::vector<StateTensor> whole = locate_state(to, to, table);  // on rank 0: where they go
  std::vector<float> passing;  // what is meant for rank 0 passes by the others
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const StateTensor& part = parts[i];
    const auto count = static_cast<std::size_t>(part.count);
    const int owner = owners[static_cast<std::size_t>(part.param)];
    float* const into = comm.leads() ? whole[i].data : nullptr;
    if (owner == 0) {
      if (into) std::copy_n(part.data, count, into);
      continue;
    }
    float* place = owner == comm.rank() ? part.data : into;
    if (!place) {
      passing.resize(std::max(passing.size(), count));
      place = passing.data();
    }
    comm.broadcast(std::span(place, count), owner)->wait();
  }
}

void exchange_parameters(Comm& comm, const ParamTable& table, std::span<float> params) {
  const std::vector<int> owners = state_owners(table, comm.ranks());
  std::vector<Comm::Handle> on_their_way;
  for (std::size_t first = 0; first < owners.size();) {
    std::size_t last = first;
    while (last + 1 < owners.size() && owners[last + 1] == owners[first]) ++last;
    const Param &begin = table.list()[first], &end = table.list()[last];
    on_their_way.push_back(
        comm.broadcast(params.subspan(static_cast<std::size_t>(begin.offset),
                                      static_cast<std::size_t>(end.offset + end.count - begin.offset)),
                       owners[first]));
    first = last + 1;
  }
  for (Comm::Handle& handle : on_their_way) handle->wait();
}

}  // namespace ddl
