// Derivatives by complex step: for analytic f and real x,
//   f(x + ih)        = f(x) + ih f'(x) - h^2 f''(x)/2 - ...
//   Im f(x + ih) / h = f'(x) + O(h^2)
// Nothing is subtracted, so h can be 1e-30 and the result is exact to rounding; there is no step to tune.
#pragma once

#include <complex>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/index.h"

namespace ddl::ref {

using Complex = std::complex<double>;
inline constexpr double kComplexStep = 1e-30;

// The same numbers in another number type; complex to real keeps the real part.
template <class To, class From>
std::vector<To> convert(const std::vector<From>& x) {
  using std::real;  // or the number type's own
  std::vector<To> y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    if constexpr (std::is_same_v<To, Complex>) {
      y[i] = To(x[i]);
    } else {
      y[i] = static_cast<To>(real(x[i]));
    }
  }
  return y;
}

// dL/dp[i], where loss() returns the scalar L as a Complex and reads p.
template <class Loss>
double complex_step(Loss&& loss, std::vector<Complex>& p, Index i) {
  const Complex keep = p[i];
  p[i] = keep + Complex(0, kComplexStep);
  const double slope = loss().imag() / kComplexStep;
  p[i] = keep;
  return slope;
}

// The gradient of f at x; f maps const std::vector<Complex>& to Complex. One evaluation of f per element.
template <class F>
std::vector<double> gradient(F&& f, const std::vector<double>& x) {
  std::vector<Complex> p = convert<Complex>(x);
  std::vector<double> slopes(x.size());
  for (Index i = 0; i < static_cast<Index>(x.size()); ++i)
    slopes[i] = complex_step([&] { return f(std::as_const(p)); }, p, i);
  return slopes;
}

// The slope of f at x along u from one evaluation, for tensors too large to walk:
//   sum_i u_i df/dx_i
template <class F>
double slope_along(F&& f, const std::vector<double>& x, const std::vector<double>& u) {
  std::vector<Complex> p(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) p[i] = Complex(x[i], u[i] * kComplexStep);
  return f(std::as_const(p)).imag() / kComplexStep;
}

}  // namespace ddl::ref
