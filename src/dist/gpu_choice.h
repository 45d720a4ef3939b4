// Which GPU a rank takes, and what carries the sums of gradients between ranks: NCCL where every rank has a
// GPU of its own, Gloo where none has one.
#pragma once

#include <string>
#include <vector>

namespace ddl {

// The GPU of a rank that was not given one by number. A launcher may show each rank its own GPU alone, as number 0.
int gpu_of_rank(int local_rank, int gpus);

// Where a rank computes.
struct RankPlace {
  std::string machine;
  std::string gpu;  // its address on the machine's bus, whatever number it has; "": on the CPU
};
enum class Backend { kGloo, kNccl };
// Throws UserError where some ranks have a GPU and others none, and where two share one, which NCCL cannot.
Backend choose_backend(const std::vector<RankPlace>& place_of_rank);

}  // namespace ddl
