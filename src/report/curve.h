// A quantity over the course of training, thinned for a page, and the mean of several with a band.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "report/document.h"

namespace ddl {

struct Curve {
  std::vector<double> tokens, flops, seconds;
  std::vector<double> y;
  std::vector<double> lo, hi;  // lowest and highest of what a point is the mean of; empty: of one value

  std::size_t size() const { return y.size(); }
  void add(double at_tokens, double at_flops, double at_seconds, double value);
};

// A page need not hold more points than it has pixels.
inline constexpr std::size_t kMaxCurvePoints = 500;

// How many neighbours one point stands for, so that at most `most` are left.
std::size_t bin_size(std::size_t points, std::size_t most = kMaxCurvePoints);
// Means over bins of `bin` neighbours, with the lowest and the highest value of each bin. What is not finite is
// left out of its bin; a bin of nothing else is NaN.
Curve thinned(const Curve& curve, std::size_t bin);

// The mean of curves with equally many points, point by point, with the lowest and the highest. A point that one
// of them does not have is NaN.
Curve mean_of(const std::vector<Curve>& curves);

// The axes that every curve of a run has, and a curve as a series on them.
std::vector<LinesBlock::Axis> curve_axes();
LinesBlock::Series curve_series(const std::string& name, const Curve& curve);

}  // namespace ddl
