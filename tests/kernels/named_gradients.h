// Gradients by complex step of a loss that has many inputs, each under a name.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "kernels/kernel_test.h"

namespace ddl {

template <class Num>
using NamedTensors = std::map<std::string, std::vector<Num>>;

// loss takes NamedTensors<Complex> and returns Complex.
template <class Loss>
NamedTensors<double> named_gradients(const NamedTensors<double>& inputs, const Loss& loss) {
  NamedTensors<Complex> at;
  for (const auto& [name, x] : inputs) at[name] = complexify(x);
  NamedTensors<double> gradients;
  for (const auto& [name, x] : inputs) {
    std::vector<Complex>& moving = at[name];
    const std::vector<Complex> still = moving;
    gradients[name] = oracle_gradient(x, [&](const std::vector<Complex>& moved) {
      moving = moved;
      return loss(at);
    });
    moving = still;
  }
  return gradients;
}

// The largest rounding_ratio over all tensors of `expected`. Those of `stored` are rounded to T.
template <class T>
double worst_ratio(const NamedTensors<double>& actual, const NamedTensors<double>& expected, Index roundings,
                   const std::vector<std::string>& stored) {
  double worst = 0;
  for (const auto& [name, values] : expected) {
    const bool rounded = sizeof(T) == 2 && std::find(stored.begin(), stored.end(), name) != stored.end();
    worst = std::max(worst, rounding_ratio(actual.at(name), values, roundings, rounded ? kBf16Epsilon : 0));
  }
  return worst;
}

// a + b, by element.
inline std::vector<double> sum_of(std::vector<double> a, const std::vector<double>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

}  // namespace ddl
