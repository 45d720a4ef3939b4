// c10d's process group on NCCL, for gradients on GPUs. A library of its own: it needs torch's CUDA half, which is large, and
// which no machine without GPUs need open.
#include <chrono>
#include <cstdlib>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

// A new group of `ranks`, which is the caller's. Throws std::exception where there is no GPU.
extern "C" c10d::Backend* ddl_make_nccl_group(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                              int ranks, std::chrono::milliseconds silence) {
  // wait() then returns when the sum is there, and throws where a rank is lost; c10d would end the process by itself.
  ::setenv("TORCH_NCCL_BLOCKING_WAIT", "1", 0);
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = silence;
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, ranks, options).release();
}

extern "C" int ddl_nccl_version() {
  int version = 0;
  return ncclGetVersion(&version) == ncclSuccess ? version : 0;
}
