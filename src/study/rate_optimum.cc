#include "study/rate_optimum.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "core/error.h"

namespace ddl {
namespace {

constexpr double kDiverged = std::numeric_limits<double>::infinity();

double loss_of(const RatePoint& point) { return std::isfinite(point.loss) ? point.loss : kDiverged; }

// The indices of the points by rising rate.
std::vector<Index> by_rate(std::span<const RatePoint> points) {
  if (points.empty()) throw UserError("learning rates: expected at least one result, found none");
  std::vector<Index> order(points.size());
  std::iota(order.begin(), order.end(), Index{0});
  std::sort(order.begin(), order.end(), [&](Index a, Index b) { return points[a].rate < points[b].rate; });
  for (std::size_t i = 0; i < order.size(); ++i) {
    const double rate = points[order[i]].rate;
    if (!(rate > 0 && std::isfinite(rate)))
      throw UserError("learning rates: expected positive numbers, found {}", rate);
    if (i > 0 && rate == points[order[i - 1]].rate)
      throw UserError("learning rates: expected each once (its mean over seeds), found {} twice", rate);
  }
  return order;
}

// The place in `order` of the lowest loss; of equal ones the lowest rate.
Index place_of_best(std::span<const RatePoint> points, std::span<const Index> order) {
  const auto lower = [&](Index a, Index b) { return loss_of(points[a]) < loss_of(points[b]); };
  return std::min_element(order.begin(), order.end(), lower) - order.begin();
}

}  // namespace

RatePoint mean_over_seeds(double rate, std::span<const double> losses) {
  double sum = 0;
  for (const double loss : losses) sum += std::isfinite(loss) ? loss : kDiverged;
  return {rate, losses.empty() ? kDiverged : sum / static_cast<double>(losses.size())};
}

RateOptimum rate_optimum(std::span<const RatePoint> points) {
  const std::vector<Index> order = by_rate(points);
  const Index place = place_of_best(points, order);
  RateOptimum optimum;
  optimum.best = order[place];
  optimum.rate = points[optimum.best].rate;
  optimum.loss = loss_of(points[optimum.best]);
  optimum.inside = place > 0 && place + 1 < std::ssize(order) && optimum.loss < kDiverged;
  if (!optimum.inside) return optimum;

  const RatePoint &left = points[order[place - 1]], &right = points[order[place + 1]];
  const double x_0 = std::log2(left.rate), x_1 = std::log2(optimum.rate), x_2 = std::log2(right.rate);
  const double slope_01 = (optimum.loss - loss_of(left)) / (x_1 - x_0);
  const double slope_12 = (loss_of(right) - optimum.loss) / (x_2 - x_1);
  const double curvature = (slope_12 - slope_01) / (x_2 - x_0);
  if (!(std::isfinite(curvature) && curvature > 0)) return optimum;
  const double x = (x_0 + x_1) / 2 - slope_01 / (2 * curvature);
  optimum.rate = std::exp2(x);
  // The same parabola around its lowest point: loss(x_1) = lowest + c (x_1 - x*)^2.
  optimum.loss -= curvature * (x_1 - x) * (x_1 - x);
  optimum.fitted = true;
  return optimum;
}

}  // namespace ddl
