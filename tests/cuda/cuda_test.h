// What the tests of CUDA text share. The kernels run on the CPU, each CUDA thread a fiber.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/bf16.h"
#include "core/error.h"
#include "core/rng.h"
#include "cuda_on_cpu.h"
#include "torch/cuda/device.cuh"

namespace ddl::cuda_test {

constexpr double kTolerance = 5e-6;
constexpr double kBf16Step = 0x1p-7;  // of values that are rounded to bf16: the other neighbour

using cuda_on_cpu::Order;

// The bf16 of the kernels' text and of the native kernels are the same bits.
inline cuda::Bf16* as_text(bf16* p) { return reinterpret_cast<cuda::Bf16*>(p); }
inline const cuda::Bf16* as_text(const bf16* p) { return reinterpret_cast<const cuda::Bf16*>(p); }
inline float* as_text(float* p) { return p; }
inline const float* as_text(const float* p) { return p; }
template <class T>
using TextOf = std::remove_pointer_t<decltype(as_text(static_cast<T*>(nullptr)))>;

template <class T = float>
std::vector<T> normals(Index count, std::uint64_t seed, double scale = 1) {
  std::vector<T> out(static_cast<std::size_t>(count));
  const Random random(seed, "cuda");
  for (Index i = 0; i < count; ++i)
    out[i] = from_float<T>(static_cast<float>(scale * random.normal(static_cast<std::uint64_t>(i))));
  return out;
}

// The largest difference, relative to the element or to the tensor's root mean square, whichever is larger.
template <class T>
double difference(const std::vector<T>& actual, const std::vector<T>& expected) {
  if (actual.size() != expected.size()) return std::numeric_limits<double>::infinity();
  double squares = 0, worst = 0;
  for (const T& e : expected) squares += double{to_float(e)} * double{to_float(e)};
  const double rms = std::sqrt(squares / static_cast<double>(std::max<std::size_t>(expected.size(), 1)));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double e = to_float(expected[i]), a = to_float(actual[i]);
    const double size = std::max({std::abs(e), rms, 1e-30});
    worst = std::isnan(a) ? std::numeric_limits<double>::infinity() : std::max(worst, std::abs(a - e) / size);
  }
  return worst;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

}  // namespace ddl::cuda_test
