// Mean, lowest, highest and standard deviation of some values, as charts and tables of several runs show them.
#pragma once

#include <cmath>
#include <vector>

#include "core/index.h"

namespace ddl {

// NaN where there are too few values; a value that is NaN counts as neither lowest nor highest.
struct Spread {
  double mean = NAN, low = NAN, high = NAN, sd = NAN;
  Index count = 0;
  explicit Spread(const std::vector<double>& values) : count(std::ssize(values)) {
    double sum = 0, squares = 0;
    for (const double v : values) sum += v, low = std::fmin(low, v), high = std::fmax(high, v);
    if (count > 0) mean = sum / static_cast<double>(count);
    for (const double v : values) squares += (v - mean) * (v - mean);
    if (count > 1) sd = std::sqrt(squares / static_cast<double>(count - 1));
  }
};

}  // namespace ddl
