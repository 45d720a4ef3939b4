// One place that says how far two correct computations may lie apart: tolerances come from rounding, not from
// trying.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/index.h"

namespace ddl::ref {

// A result that went through `roundings` roundings, each relative to numbers no larger than `magnitude`, is
// within eps * roundings * magnitude of the exact one (eps/2 a rounding, two computations compared).
inline double rounding_tolerance(double magnitude, Index roundings,
                                 double eps = std::numeric_limits<double>::epsilon()) {
  return eps * static_cast<double>(roundings) * magnitude;
}

inline double largest(const std::vector<double>& x) {
  double result = 0;
  for (const double value : x) result = std::max(result, std::abs(value));
  return result;
}

// max_i |a_i - b_i|; infinite when the sizes differ or anything is NaN, so that a comparison with it fails.
inline double distance(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size() || a.empty()) return std::numeric_limits<double>::infinity();
  double result = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double gap = std::abs(a[i] - b[i]);
    if (!(gap <= result)) result = std::isnan(gap) ? std::numeric_limits<double>::infinity() : gap;
  }
  return result;
}

// A central difference with its own error bound. Truncation: the error of the h estimate is c h^2 + O(h^4),
// and the 2h estimate shows 4 c h^2, so their gap bounds it three times over. Rounding: each loss carries
// rounding_tolerance(|f|, roundings), divided by h.
struct Slope {
  double value, tolerance;
};

template <class F>
Slope central_difference(F&& f, double& x, Index roundings, double h = 1e-4) {
  const double keep = x;
  const auto at = [&](double offset) {
    x = keep + offset;
    return f();
  };
  const double up = at(h), down = at(-h), up2 = at(2 * h), down2 = at(-2 * h);
  x = keep;
  const double slope = (up - down) / (2 * h), wide = (up2 - down2) / (4 * h);
  const double magnitude = std::max(std::abs(up), std::abs(down));
  return {slope, std::abs(wide - slope) + rounding_tolerance(magnitude, roundings) / h};
}

}  // namespace ddl::ref
