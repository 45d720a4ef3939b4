// What every kernel test uses: guarded, misaligned buffers; a tolerance that follows from rounding; the
// oracle's gradients by complex step.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "core/bf16.h"
#include "core/exec.h"
#include "core/rng.h"

namespace ddl {

// n elements that start `offset` elements after an aligned address, with guard words on both sides. A kernel
// that writes outside is caught by intact().
template <class T>
class Buffer {
 public:
  explicit Buffer(Index n, Index offset = 1)
      : n_(n), begin_(kGuard + offset), storage_(n + offset + 2 * kGuard) {
    std::memset(static_cast<void*>(storage_.data()), 0xAB, storage_.size() * sizeof(T));
    std::fill_n(data(), n, T{});
  }
  Buffer(const std::vector<double>& values, Index offset = 1) : Buffer(std::ssize(values), offset) {
    for (Index i = 0; i < n_; ++i) data()[i] = from_float<T>(static_cast<float>(values[i]));
  }
  T* data() { return storage_.data() + begin_; }
  const T* data() const { return storage_.data() + begin_; }
  Index size() const { return n_; }
  T& operator[](Index i) { return data()[i]; }
  const T& operator[](Index i) const { return data()[i]; }
  bool intact() const {
    const auto* bytes = reinterpret_cast<const unsigned char*>(storage_.data());
    const Index first = begin_ * static_cast<Index>(sizeof(T)),
                last = (begin_ + n_) * static_cast<Index>(sizeof(T));
    for (Index i = 0; i < std::ssize(storage_) * static_cast<Index>(sizeof(T)); ++i)
      if ((i < first || i >= last) && bytes[i] != 0xAB) return false;
    return true;
  }
  std::vector<double> values() const {  // exactly what the kernel sees or wrote, for the oracle
    std::vector<double> out(n_);
    for (Index i = 0; i < n_; ++i) out[i] = to_float(data()[i]);
    return out;
  }

 private:
  static constexpr Index kGuard = 64;
  Index n_, begin_;
  std::vector<T> storage_;
};

// Normal numbers, rounded to T so that the kernel and the oracle start from the same values.
template <class T = float>
std::vector<double> normals(Index n, std::uint64_t seed, double scale = 1.0) {
  std::vector<double> out(n);
  const Random random(seed, "test");
  for (Index i = 0; i < n; ++i)
    out[i] =
        to_float(from_float<T>(static_cast<float>(scale * random.normal(static_cast<std::uint64_t>(i)))));
  return out;
}

// The largest |actual - expected| as a multiple of what rounding explains.
//
// A value that is the result of m dependent f32 roundings, each off by at most eps/2 of the running value,
// drifts like a random walk: standard deviation below eps/2 * sqrt(m) times the size of the values summed.
// Sixteen times that is far outside chance and still 10^3 to 10^5 below a missing term. The size is the
// larger of the element itself and the tensor's root mean square (elements near zero come from cancellation
// of terms of that size).
inline double rounding_ratio(const std::vector<double>& actual, const std::vector<double>& expected,
                             Index roundings, double storage_epsilon = 0) {
  if (actual.size() != expected.size()) return std::numeric_limits<double>::infinity();
  constexpr double kEpsilon = std::numeric_limits<float>::epsilon();
  double squares = 0;
  for (double e : expected) squares += e * e;
  const double rms = std::sqrt(squares / static_cast<double>(std::max<std::size_t>(1, expected.size())));
  const double walk = 16 * kEpsilon / 2 * std::sqrt(static_cast<double>(roundings));
  double worst = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double size = std::abs(expected[i]);
    const double bound = (walk * std::max(size, rms)) * (1 + storage_epsilon) + storage_epsilon / 2 * size +
                         std::numeric_limits<float>::min();
    const double ratio = std::abs(actual[i] - expected[i]) / bound;
    worst = std::isnan(ratio) ? std::numeric_limits<double>::infinity() : std::max(worst, ratio);
  }
  return worst;
}

constexpr double kBf16Epsilon = 0x1p-7;  // spacing of bf16 at 1

using Complex = std::complex<double>;
inline std::vector<Complex> complexify(const std::vector<double>& x) { return {x.begin(), x.end()}; }

// d loss / d x for a scalar loss of one input, exact to double rounding: Im loss(x + i h) / h with h = 1e-30.
// loss takes std::vector<Complex> and returns Complex. Every element is stepped.
template <class Loss>
std::vector<double> oracle_gradient(const std::vector<double>& x, const Loss& loss) {
  std::vector<Complex> z = complexify(x);
  std::vector<double> gradient(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    z[i] = Complex(x[i], 1e-30);
    gradient[i] = loss(z).imag() / 1e-30;
    z[i] = x[i];
  }
  return gradient;
}

// sum_i weights_i y_i: turns a tensor into a scalar loss whose gradient with respect to y is `weights`.
inline Complex weighted_sum(const std::vector<Complex>& y, const std::vector<double>& weights) {
  Complex sum = 0;
  for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * weights[i];
  return sum;
}

}  // namespace ddl
