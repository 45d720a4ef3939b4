#include "bench/measure.h"

#include <algorithm>
#include <cstdio>

#include "core/clock.h"
#include "kernels/adamw.h"
#include "kernels/gemm.h"
#include "kernels/isa.h"

namespace ddl {
namespace {

template <class T>
double gemm_gflops(const Exec& ex) {
  double best = 0;
  for (const Index size : {1024, 1536}) {
    const std::vector<T> a(size * size, from_float<T>(0.5f)), b(size * size, from_float<T>(0.25f));
    std::vector<float> c(size * size);
    const Timing t = time_it(
        [&] {
          gemm<T, float>(c.data(), size, Write::kOverwrite, {a.data(), size},
                         {b.data(), size, Op::kTranspose}, size, size, size, ex);
        },
        0.5);
    best = std::max(best, 2.0 * static_cast<double>(size * size * size) / t.best_s / 1e9);
  }
  return best;
}

// Three patterns, the best counts: scaling in place (8 bytes an element), a sum of two arrays into a third
// (12), and the shape of an optimizer step, two arrays updated in place from two others (24).
double stream_gbps(const Exec& ex) {
  const Index count = 1 << 25, grain = 1 << 16;  // 128 MiB an array: far outside any cache
  std::vector<float> a(count, 1.0f), b(count, 2.0f), c(count, 3.0f), d(count, 4.0f);
  const auto gbps = [&](double bytes, FunctionRef<void(Index, Index)> body) {
    return bytes * static_cast<double>(count) /
           time_it([&] { parallel_chunks(count, grain, ex, body); }).best_s / 1e9;
  };
  const double scale = gbps(8, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) a[i] *= 1.0000001f;
  });
  const double triad = gbps(16, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) a[i] = b[i] + 0.5f * c[i];
  });
  const double update = gbps(24, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) a[i] += 0.5f * c[i], b[i] += 0.5f * d[i];
  });
  return std::max({scale, triad, update});
}

double read_gbps(const Exec& ex) {
  const Index count = 1 << 26;  // 256 MiB
  const std::vector<float> a(count, 1.0f);
  const Timing t = time_it([&] { sum_of_squares(a.data(), count, ex); }, 0.5);
  return static_cast<double>(count) * 4 / t.best_s / 1e9;
}

}  // namespace

Timing time_it(FunctionRef<void()> body, double min_seconds) {
  body();
  std::vector<double> seconds;
  const double start = now();
  while (std::ssize(seconds) < 5 || now() - start < min_seconds) {
    const double before = now();
    body();
    seconds.push_back(now() - before);
  }
  std::sort(seconds.begin(), seconds.end());
  return {seconds.front(), seconds[seconds.size() / 2], static_cast<int>(seconds.size())};
}

MachineLimits measure_limits(const Exec& ex) {
  return {gemm_gflops<float>(ex), has_fast_bf16() ? gemm_gflops<bf16>(ex) : 0, stream_gbps(ex),
          read_gbps(ex)};
}

void print_limits(const MachineLimits& limits, const Exec& ex, bool json) {
  if (json) {
    Json record = make_record("machine");
    record["isa"] = current_isa();
    record["threads"] = ex.threads;
    record["f32_gflops"] = limits.f32_gflops;
    record["bf16_gflops"] = limits.bf16_gflops;
    record["stream_gbps"] = limits.stream_gbps;
    record["read_gbps"] = limits.read_gbps;
    std::puts(to_line(record).c_str());
    return;
  }
  fmt::print(
      "{}, {} thread{}. Limits measured in this run: f32 GEMM {:.0f} GFLOP/s, {}, streaming {:.1f} GB/s, "
      "reading {:.1f} GB/s.\n",
      current_isa(), ex.threads, ex.threads == 1 ? "" : "s", limits.f32_gflops,
      limits.bf16_gflops > 0 ? fmt::format("bf16 GEMM {:.0f} GFLOP/s", limits.bf16_gflops)
                             : "no bf16 instructions (f32 path)",
      limits.stream_gbps, limits.read_gbps);
}

}  // namespace ddl
