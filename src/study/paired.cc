#include "study/paired.h"

#include <algorithm>
#include <boost/math/distributions/normal.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "core/error.h"
#include "core/rng.h"

namespace ddl {
namespace {

double mean_of(std::span<const double> values) {
  double sum = 0;
  for (const double v : values) sum += v;
  return sum / static_cast<double>(values.size());
}

// sum (m - m_(i))^3 / (6 (sum (m - m_(i))^2)^1.5) over the means m_(i) without value i; their deviations are
// (d_i - mean) / (n - 1), and the factor cancels.
double acceleration_of(std::span<const double> values, double mean) {
  double squares = 0, cubes = 0;
  for (const double v : values) {
    squares += (v - mean) * (v - mean);
    cubes += (v - mean) * (v - mean) * (v - mean);
  }
  return squares > 0 ? cubes / (6 * std::pow(squares, 1.5)) : 0;
}

std::vector<double> resampled_means(std::span<const double> values, Index resamples, std::uint64_t seed) {
  const Random random(seed, "study.bootstrap");
  const Index n = std::ssize(values);
  std::vector<double> means(static_cast<std::size_t>(resamples));
  for (Index r = 0; r < resamples; ++r) {
    double sum = 0;
    for (Index i = 0; i < n; ++i)
      sum += values[random.below(static_cast<std::uint64_t>(r * n + i), static_cast<std::uint64_t>(n))];
    means[r] = sum / static_cast<double>(n);
  }
  std::sort(means.begin(), means.end());
  return means;
}

Interval bca_interval(std::span<const double> values, double mean, double level, Index resamples,
                      std::uint64_t seed) {
  const std::vector<double> means = resampled_means(values, resamples, seed);
  const auto count = static_cast<double>(resamples);
  // Resampled means of few values repeat: one that equals the mean (but for rounding) counts as half below it.
  const double rounding = 1e-12 * (std::abs(means.front()) + std::abs(means.back()));
  const auto below = std::lower_bound(means.begin(), means.end(), mean - rounding) - means.begin();
  const auto up_to = std::upper_bound(means.begin(), means.end(), mean + rounding) - means.begin();
  const double share =
      std::clamp(0.5 * static_cast<double>(below + up_to) / count, 0.5 / count, 1 - 0.5 / count);

  const boost::math::normal normal;
  const double bias = boost::math::quantile(normal, share);
  const double acceleration = acceleration_of(values, mean);
  const auto percentile = [&](double tail) {
    const double z = bias + boost::math::quantile(normal, tail);
    const double corrected = boost::math::cdf(normal, bias + z / (1 - acceleration * z));
    const auto at = static_cast<Index>(std::floor(corrected * count));
    return means[std::clamp<Index>(at, 0, resamples - 1)];
  };
  return {percentile((1 - level) / 2), percentile((1 + level) / 2)};
}

}  // namespace

PairedResult paired_t(std::span<const double> differences, double level) {
  DDL_CHECK(level > 0 && level < 1, "level {}", level);
  PairedResult result;
  result.level = level;
  result.n = std::ssize(differences);
  result.sd = result.standard_error = std::numeric_limits<double>::quiet_NaN();
  for (const double d : differences) result.non_finite += !std::isfinite(d);
  result.mean = mean_of(differences);
  if (result.n < 2 || result.non_finite > 0) return result;

  double squares = 0;
  for (const double d : differences) squares += (d - result.mean) * (d - result.mean);
  result.sd = std::sqrt(squares / static_cast<double>(result.n - 1));
  result.standard_error = result.sd / std::sqrt(static_cast<double>(result.n));
  if (result.standard_error == 0) {
    // Equal differences say nothing of their spread: no inference, unless there is no difference at all.
    if (result.mean == 0) result.t = {0, 0};
    return result;
  }
  const boost::math::students_t t(static_cast<double>(result.n - 1));
  const double reach =
      boost::math::quantile(boost::math::complement(t, (1 - level) / 2)) * result.standard_error;
  result.t = {result.mean - reach, result.mean + reach};
  result.p = 2 * boost::math::cdf(boost::math::complement(t, std::abs(result.mean) / result.standard_error));
  return result;
}

PairedResult paired_result(std::span<const double> differences, double level, Index resamples,
                           std::uint64_t seed) {
  DDL_CHECK(resamples >= 1, "{} resamples", resamples);
  PairedResult result = paired_t(differences, level);
  if (result.n < 2 || result.non_finite > 0) return result;
  result.bootstrap = bca_interval(differences, result.mean, level, resamples, seed);
  return result;
}

}  // namespace ddl
