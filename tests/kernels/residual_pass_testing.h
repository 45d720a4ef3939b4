// What the tests of the residual pass share: named tensors, their buffers, gradients by complex step.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/named_gradients.h"

namespace ddl::residual_pass_test {

using Tensors = NamedTensors<double>;

// The gradients of every input of `forward`, a function from named tensors to named tensors, for the loss
//   sum over outputs of g . output
// g: what arrives as gradient of each output.
template <class Forward>
Tensors gradients_by_complex_step(const Tensors& in, const Tensors& g, const Forward& forward) {
  return named_gradients(in, [&](const NamedTensors<Complex>& at) {
    const auto out = forward(at);
    Complex loss = 0;
    for (const auto& [output, weights] : g) loss += weighted_sum(out.at(output), weights);
    return loss;
  });
}

// Steering numbers as the kernel sees them: N rows of R, in rows that are two floats longer. All start as NaN,
// so that a number that was never written is seen; the floats between the rows must stay NaN.
class Steering {
 public:
  Steering(Index N, Index R) : stride(R + 2), N_(N), R_(R), rows_(N * stride) {
    std::fill_n(rows_.data(), rows_.size(), std::numeric_limits<float>::quiet_NaN());
  }
  const Index stride;

  float* data() { return rows_.data(); }
  void put(Index first, const std::vector<double>& values) {
    const Index count = std::ssize(values) / N_;
    for (Index n = 0; n < N_; ++n)
      for (Index j = 0; j < count; ++j)
        rows_[n * stride + first + j] = static_cast<float>(values[n * count + j]);
  }
  std::vector<double> take(Index first, Index count) const {
    std::vector<double> values;
    for (Index n = 0; n < N_; ++n)
      for (Index j = 0; j < count; ++j) values.push_back(rows_[n * stride + first + j]);
    return values;
  }
  std::vector<double> all() const { return take(0, R_); }
  bool intact() const {
    bool untouched = true;
    for (double x : take(R_, stride - R_)) untouched = untouched && std::isnan(x);
    return untouched && rows_.intact();
  }

 private:
  Index N_, R_;
  Buffer<float> rows_;
};

// The buffers of a set of named tensors; a name that is not there has a null pointer.
class Buffers {
 public:
  explicit Buffers(const Tensors& tensors) {
    for (const auto& [name, x] : tensors) buffers_.emplace(name, Buffer<float>(x));
  }
  static Buffers zeros_like(const Tensors& tensors) {
    Tensors zeros;
    for (const auto& [name, x] : tensors) zeros[name].resize(x.size());
    return Buffers(zeros);
  }
  float* operator[](const std::string& name) {
    return buffers_.count(name) ? buffers_.at(name).data() : nullptr;
  }
  std::vector<double> values(const std::string& name) const { return buffers_.at(name).values(); }
  void add_to(Tensors& tensors, const std::string& prefix) const {
    for (const auto& [name, buffer] : buffers_) tensors[prefix + name] = buffer.values();
  }
  bool intact() const {
    return std::all_of(buffers_.begin(), buffers_.end(), [](const auto& b) { return b.second.intact(); });
  }

 private:
  std::map<std::string, Buffer<float>> buffers_;
};

// The longest chain of roundings: a few sums over C and D, then (weights) one over N.
inline Index pass_roundings(Index N, Index D, Index C) { return 4 * C * D + N + 64; }

template <class T>
constexpr double kStorage = std::is_same_v<T, bf16> ? kBf16Epsilon : 0;

}  // namespace ddl::residual_pass_test
