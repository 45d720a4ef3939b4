#include "report/curve.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace ddl {

void Curve::add(double at_tokens, double at_flops, double at_seconds, double value) {
  tokens.push_back(at_tokens);
  flops.push_back(at_flops);
  seconds.push_back(at_seconds);
  y.push_back(value);
}

std::size_t bin_size(std::size_t points, std::size_t most) {
  return std::max<std::size_t>(1, (points + most - 1) / most);
}

Curve thinned(const Curve& curve, std::size_t bin) {
  if (bin <= 1) return curve;
  Curve result;
  for (std::size_t from = 0; from < curve.size(); from += bin) {
    const std::size_t end = std::min(from + bin, curve.size());
    const auto mean = [&](const std::vector<double>& values) {
      double sum = 0;
      for (std::size_t i = from; i < end; ++i) sum += values[i];
      return sum / static_cast<double>(end - from);
    };
    double sum = 0, count = 0, low = NAN, high = NAN;
    for (std::size_t i = from; i < end; ++i) {
      if (!std::isfinite(curve.y[i])) continue;
      sum += curve.y[i];
      count += 1;
      low = std::fmin(low, curve.y[i]);
      high = std::fmax(high, curve.y[i]);
    }
    result.add(mean(curve.tokens), mean(curve.flops), mean(curve.seconds), count > 0 ? sum / count : NAN);
    result.lo.push_back(low);
    result.hi.push_back(high);
  }
  return result;
}

Curve mean_of(const std::vector<Curve>& curves) {
  DDL_CHECK(!curves.empty(), "the mean of no curves");
  if (curves.size() == 1) return curves[0];
  const double count = static_cast<double>(curves.size());
  Curve result;
  for (std::size_t i = 0; i < curves[0].size(); ++i) {
    double tokens = 0, flops = 0, seconds = 0, sum = 0, low = INFINITY, high = -INFINITY;
    for (const Curve& curve : curves) {
      DDL_CHECK(curve.size() == curves[0].size(), "curves of {} and {} points", curve.size(),
                curves[0].size());
      tokens += curve.tokens[i] / count;
      flops += curve.flops[i] / count;
      seconds += curve.seconds[i] / count;
      sum += curve.y[i] / count;
      low = std::min(low, curve.y[i]);
      high = std::max(high, curve.y[i]);
    }
    const bool finite = std::isfinite(sum);
    result.add(tokens, flops, seconds, finite ? sum : NAN);
    result.lo.push_back(finite ? low : NAN);
    result.hi.push_back(finite ? high : NAN);
  }
  return result;
}

std::vector<LinesBlock::Axis> curve_axes() {
  return {{"tokens", "tokens"}, {"flops", "FLOPs"}, {"seconds", "seconds"}};
}

LinesBlock::Series curve_series(const std::string& name, const Curve& curve) {
  return {.name = name,
          .group = "",
          .x = {{"tokens", curve.tokens}, {"flops", curve.flops}, {"seconds", curve.seconds}},
          .y = curve.y,
          .lo = curve.lo,
          .hi = curve.hi};
}

}  // namespace ddl
