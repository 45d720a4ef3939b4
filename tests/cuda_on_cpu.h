// Runs CUDA kernel text on the CPU. Each CUDA thread is a fiber; barriers and shuffles are where fibers change.
//
// A warp runs until all its lanes wait at a block's barrier or have ended, then the next one does, first to last
// or last to first: as far apart as a GPU could let them drift. A kernel without a race gives the same bits in both
// orders. One barrier can be left out, to see that it matters. Include this before the kernels.
#pragma once

#include <ucontext.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "core/bf16.h"

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static

struct dim3 {
  unsigned x, y, z;
  explicit dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) ushort4 {
  unsigned short x, y, z, w;
};

namespace cuda_on_cpu {

inline constexpr unsigned kLanes = 32;

struct Fiber {
  ucontext_t context;
  std::vector<char> stack = std::vector<char>(128 << 10);
  unsigned index = 0;
  bool done = false, at_block = false, at_warp = false;
  int barriers = 0, shuffles = 0;  // passed
};

inline Fiber* current = nullptr;
inline ucontext_t scheduler;
inline std::vector<Fiber> fibers;
inline std::function<void()> body;
inline dim3 thread_index, block_index, block_size, grid_size;
inline std::uint64_t lanes[2][kLanes][kLanes];  // shuffles take turns with two sets of slots: [][warp][lane]
inline int left_out = -1;                       // this barrier does nothing
inline int barriers_of_last_launch = 0;         // that a thread of the first block passed, at most

enum class Order { kFirstToLast, kLastToFirst };

inline void yield() {
  Fiber* me = current;
  swapcontext(&me->context, &scheduler);
  thread_index.x = me->index;
}

inline void entry() {
  body();
  current->done = true;
  swapcontext(&current->context, &scheduler);
}

// Runs a warp until it can go no further without the others. Whether any lane ran.
inline bool run_warp(unsigned begin, unsigned end, Order order) {
  bool ran = false;
  for (bool going = true; going;) {
    going = false;
    for (unsigned i = begin; i < end; ++i) {
      Fiber& fiber = fibers[order == Order::kFirstToLast ? i : begin + end - 1 - i];
      if (fiber.done || fiber.at_block || fiber.at_warp) continue;
      going = ran = true;
      current = &fiber;
      thread_index.x = fiber.index;
      swapcontext(&scheduler, &fiber.context);
    }
    bool all_at_warp = true, any = false;
    for (unsigned i = begin; i < end; ++i)
      if (!fibers[i].done) any = true, all_at_warp = all_at_warp && fibers[i].at_warp;
    if (any && all_at_warp) {
      for (unsigned i = begin; i < end; ++i) fibers[i].at_warp = false;
      going = true;
    }
  }
  return ran;
}

inline void run_block(Order order) {
  const unsigned threads = block_size.x, warps = (threads + kLanes - 1) / kLanes;
  if (fibers.size() < threads) fibers.resize(threads);
  for (unsigned t = 0; t < threads; ++t) {
    Fiber& fiber = fibers[t];
    fiber.index = t, fiber.done = fiber.at_block = fiber.at_warp = false;
    fiber.barriers = fiber.shuffles = 0;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.data();
    fiber.context.uc_stack.ss_size = fiber.stack.size();
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, entry, 0);
  }
  for (;;) {
    bool ran = false;
    for (unsigned w = 0; w < warps; ++w) {
      const unsigned warp = order == Order::kFirstToLast ? w : warps - 1 - w;
      const unsigned begin = warp * kLanes, end = begin + kLanes < threads ? begin + kLanes : threads;
      ran = run_warp(begin, end, order) || ran;
    }
    bool all_done = true, all_at_block = true;
    for (unsigned t = 0; t < threads; ++t) {
      all_done = all_done && fibers[t].done;
      all_at_block = all_at_block && (fibers[t].done || fibers[t].at_block);
    }
    if (all_done) return;
    if (all_at_block)
      for (unsigned t = 0; t < threads; ++t) fibers[t].at_block = false;
    else if (!ran)
      throw std::runtime_error("deadlock: threads wait at different barriers");
  }
}

// Blocks have one dimension, grids up to two.
inline void launch(dim3 grid, dim3 block, std::function<void()> kernel, Order order) {
  body = std::move(kernel), grid_size = grid, block_size = block;
  barriers_of_last_launch = 0;
  for (unsigned y = 0; y < grid.y; ++y)
    for (unsigned x = 0; x < grid.x; ++x) {
      block_index = dim3(x, y);
      run_block(order);
      if (fibers[0].barriers > barriers_of_last_launch) barriers_of_last_launch = fibers[0].barriers;
    }
}

// What the kernels' launchers take.
struct Launch {
  Order order = Order::kFirstToLast;
  template <class Kernel, class Args>
  void operator()(dim3 grid, dim3 block, Kernel kernel, const Args& args) const {
    launch(
        grid, block, [&] { kernel(args); }, order);
  }
};

}  // namespace cuda_on_cpu

#define threadIdx cuda_on_cpu::thread_index
#define blockIdx cuda_on_cpu::block_index
#define blockDim cuda_on_cpu::block_size
#define gridDim cuda_on_cpu::grid_size

inline void __syncthreads() {
  if (cuda_on_cpu::current->barriers++ == cuda_on_cpu::left_out) return;
  cuda_on_cpu::current->at_block = true;
  cuda_on_cpu::yield();
}
template <class T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  const unsigned thread = threadIdx.x, warp = thread / cuda_on_cpu::kLanes,
                 lane = thread % cuda_on_cpu::kLanes;
  auto& slots = cuda_on_cpu::lanes[cuda_on_cpu::current->shuffles++ % 2][warp];
  std::memcpy(&slots[lane], &value, sizeof value);
  cuda_on_cpu::current->at_warp = true;
  cuda_on_cpu::yield();
  std::memcpy(&value, &slots[lane ^ static_cast<unsigned>(mask)], sizeof value);
  return value;
}

// What the text needs of CUDA's library.
inline float __uint_as_float(std::uint32_t bits) { return std::bit_cast<float>(bits); }
inline ddl::bf16 __float2bfloat16_rn(float x) { return ddl::to_bf16(x); }
inline std::uint16_t __bfloat16_as_ushort(ddl::bf16 x) { return x.bits; }
using std::fmaf;
