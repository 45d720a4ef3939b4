// Timing, and the two limits of the machine every benchmark is compared with, measured in the same run.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "core/exec.h"
#include "core/function_ref.h"
#include "core/record.h"

namespace ddl {

struct Timing {
  double best_s, median_s;
  int runs;
};

// Calls body until it has run for min_seconds and at least five times, after one call that does not count.
Timing time_it(FunctionRef<void()> body, double min_seconds = 0.25);

double median(std::vector<double> values);  // of an even number the larger of the middle two

// What the machine can do: the best GEMM rate of the library and the best streaming rate, over ex.threads.
struct MachineLimits {
  double f32_gflops;
  double bf16_gflops;  // 0 without bf16 instructions
  double stream_gbps;  // bytes read and written; a pure output counts twice, because it is fetched first
  double read_gbps;    // reading alone
};
MachineLimits measure_limits(const Exec& ex);

// Single limits, measured when called: the best rate of the GEMM library, ...
double gemm_gflops(bool in_bf16, const Exec& ex);
// ... and one pass that reads `data` (megabytes at least) and does nothing else.
double read_gbps(std::span<const std::byte> data, const Exec& ex);

// Exponentials per second with their arrays in the cache: those of SwiGLU.
double exp_rate(const Exec& ex);

// Prints "AVX2, 2 threads, ..." and the limits: the head of every benchmark. --json prints a record instead.
void print_limits(const MachineLimits& limits, const Exec& ex, bool json);

}  // namespace ddl
