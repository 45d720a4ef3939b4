// The best learning rate from a grid: a parabola in x = log2(rate) through the best grid point and its two neighbours.
// With the best point at x_1 and slopes s_01, s_12 between the three points,
//
//   curvature c = (s_12 - s_01) / (x_2 - x_0)      optimum x* = (x_0 + x_1) / 2 - s_01 / (2 c)
//
// Only three points, because the loss rises slowly below the best rate and steeply above it: a parabola through the
// whole grid would be drawn to where the losses bend otherwise.
#pragma once

#include <span>

#include "core/index.h"

namespace ddl {

struct RatePoint {
  double rate;
  double loss;  // mean over the tuning seeds; not finite: a run diverged, which counts as +infinity
};
// The mean over seeds; +infinity where one of them diverged.
RatePoint mean_over_seeds(double rate, std::span<const double> losses);

struct RateOptimum {
  double rate = 0, loss = 0;  // of the parabola's lowest point, or of the best grid point
  Index best = 0;             // the grid point with the lowest loss: an index of `points`
  bool inside = false;        // the best grid point has a neighbour on either side
  bool fitted = false;  // whether a parabola says so: inside, neighbours finite, and not all three equal
};

// Points in any order, each rate once (else UserError). Where all diverged, the loss is +infinity and the rate the
// lowest there is.
RateOptimum rate_optimum(std::span<const RatePoint> points);

}  // namespace ddl
