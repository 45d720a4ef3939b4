#include "dist/gpu_choice.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/error.h"

namespace ddl {

int gpu_of_rank(int local_rank, int gpus) { return local_rank % gpus; }

Backend choose_backend(const std::vector<RankPlace>& place_of_rank) {
  std::vector<int> without;
  std::map<std::pair<std::string, std::string>, int> first;  // that has this GPU
  for (int rank = 0; rank < std::ssize(place_of_rank); ++rank) {
    const auto& [machine, gpu] = place_of_rank[rank];
    if (gpu.empty()) {
      without.push_back(rank);
      continue;
    }
    const auto [other, fresh] = first.try_emplace({machine, gpu}, rank);
    if (!fresh)
      throw UserError(
          "ranks {} and {} have the same GPU ({} of {}): every rank needs its own; start as many ranks as "
          "the machine has GPUs, with --device cuda",
          other->second, rank, gpu, machine);
  }
  if (without.size() == place_of_rank.size()) return Backend::kGloo;
  if (!without.empty())
    throw UserError("rank{} {} compute{} on the CPU, the others on GPUs: all must do the same (--device)",
                    without.size() == 1 ? "" : "s", fmt::join(without, ", "), without.size() == 1 ? "s" : "");
  return Backend::kNccl;
}

}  // namespace ddl
