// Paired differences: the same seed and the same batches under two rules, d_i = loss_a,i - loss_b,i.
//
//   mean = sum d / n      sd^2 = sum (d - mean)^2 / (n - 1)      standard error = sd / sqrt(n)
//   t interval = mean +- t_(n-1, (1 + level)/2) * standard error      p = P(|t_(n-1)| >= |mean| / standard error)
//
// The bootstrap interval checks the normal assumption: BCa, the bias-corrected and
// accelerated percentiles of resampled means (Efron, "Better bootstrap confidence intervals", JASA 82, 1987). With few
// pairs it is too narrow, because resampling knows sd * sqrt((n-1)/n) and no t quantile: at n = 12 a 95% interval
// covers about 91%. The t interval is the one to decide by.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "core/index.h"

namespace ddl {

struct Interval {
  double low = 0, high = 0;
  bool inside(double from, double to) const { return from < low && high < to; }
  bool contains(double value) const { return low <= value && value <= high; }
};
// The interval of somebody who knows nothing.
inline constexpr Interval kEverything = {-std::numeric_limits<double>::infinity(),
                                         std::numeric_limits<double>::infinity()};

// With fewer than two pairs, or where a difference is not finite (a run diverged), nothing can be inferred: the
// intervals are everything and p is 1.
struct PairedResult {
  Index n = 0, non_finite = 0;
  double mean = 0, sd = 0, standard_error = 0;
  double p = 1;  // two-sided
  double level = 0.95;
  Interval t = kEverything, bootstrap = kEverything;
};

PairedResult paired_result(std::span<const double> differences, double level = 0.95, Index resamples = 10000,
                           std::uint64_t seed = 0);

// The parts of it that decisions use, without the bootstrap.
PairedResult paired_t(std::span<const double> differences, double level = 0.95);

}  // namespace ddl
