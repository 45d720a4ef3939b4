#include "kernels/gemm_rate.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "kernels/gemm.h"

namespace ddl {
namespace {

template <class T>
double best_gflops(double seconds, const Exec& ex) {
  using Clock = std::chrono::steady_clock;
  const auto elapsed = [](Clock::time_point since) {
    return std::chrono::duration<double>(Clock::now() - since).count();
  };
  double best = 0;
  for (const Index size : {1024, 1536}) {
    const auto count = static_cast<std::size_t>(size * size);
    const std::vector<T> a(count, from_float<T>(0.5f)), b(count, from_float<T>(0.25f));
    std::vector<float> c(count);
    const auto run = [&] {
      gemm<T, float>(c.data(), size, Write::kOverwrite, {a.data(), size}, {b.data(), size, Op::kTranspose},
                     size, size, size, ex);
    };
    run();
    const auto start = Clock::now();
    for (int runs = 0; runs < 5 || elapsed(start) < seconds / 2; ++runs) {
      const auto before = Clock::now();
      run();
      best = std::max(best, 2.0 * static_cast<double>(size * size * size) / elapsed(before) / 1e9);
    }
  }
  return best;
}

}  // namespace

double measure_gemm_gflops(bool bf16_inputs, double seconds, const Exec& ex) {
  return bf16_inputs ? best_gflops<bf16>(seconds, ex) : best_gflops<float>(seconds, ex);
}

}  // namespace ddl
