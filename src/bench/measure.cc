#include "bench/measure.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>

#include "core/bf16.h"
#include "core/clock.h"
#include "core/function_ref.h"
#include "kernels/gemm.h"
#include "kernels/isa.h"
#include "kernels/read_words.h"
#include "kernels/swiglu.h"

namespace ddl {
namespace {

template <class T>
double gemm_rate(const Exec& ex) {
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

// Three patterns, the best counts: scaling in place (8 bytes per element), a sum of two arrays into a third
// (12), and the shape of an optimizer step, two arrays updated in place from two others (24).
double stream_gbps(const Exec& ex) {
  const Index count = 1 << 25, grain = 1 << 16;  // 128 MiB per array: far outside any cache
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

double read_gbps(std::span<const std::byte> data, const Exec& ex) {
  const auto words = static_cast<Index>(data.size() / sizeof(std::uint32_t));
  const double start = now();
  read_words(reinterpret_cast<const std::uint32_t*>(data.data()), words, ex);
  return static_cast<double>(words) * sizeof(std::uint32_t) / (now() - start) / 1e9;
}

double exp_rate(const Exec& ex) {
  const Index N = 8 * static_cast<Index>(ex.threads), F = 512;
  const std::vector<float> gate_up_N2F(N * 2 * F, 0.5f);
  std::vector<float> hidden_NF(N * F);
  const Timing t = time_it([&] { swiglu_fwd<float>(hidden_NF.data(), gate_up_N2F.data(), N, F, ex); });
  return static_cast<double>(N * F) / t.best_s;
}

double gemm_gflops(bool in_bf16, const Exec& ex) {
  return in_bf16 ? gemm_rate<bf16>(ex) : gemm_rate<float>(ex);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

MachineLimits measure_limits(const Exec& ex) {
  MachineLimits limits{};
  limits.f32_gflops = gemm_gflops(false, ex);
  limits.bf16_gflops = has_fast_bf16() ? gemm_gflops(true, ex) : 0;
  limits.stream_gbps = stream_gbps(ex);
  const std::vector<float> data(Index{1} << 26, 1.0f);  // 256 MiB
  for (int i = 0; i < 5; ++i)
    limits.read_gbps = std::max(limits.read_gbps, read_gbps(std::as_bytes(std::span(data)), ex));
  return limits;
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
