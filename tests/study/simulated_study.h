// Studies with a known truth, and how far a count may lie from what it should be.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "core/index.h"
#include "core/rng.h"

namespace ddl {

// Normal differences with standard deviation 1 around `effect`.
inline std::vector<double> simulated_differences(std::uint64_t seed, Index study, Index pairs,
                                                 double effect) {
  const Random random(seed, static_cast<std::uint64_t>(study));
  std::vector<double> differences;
  for (Index i = 0; i < pairs; ++i)
    differences.push_back(effect + random.normal(static_cast<std::uint64_t>(i)));
  return differences;
}

// Four standard deviations of the share of `trials` that succeed with probability p: exceeded by chance once in
// about 16,000 seeds.
inline double four_sigma(Index trials, double p) {
  return 4 * std::sqrt(p * (1 - p) / static_cast<double>(trials));
}

inline void expect_binomial(Index successes, Index trials, double p) {
  EXPECT_NEAR(static_cast<double>(successes) / static_cast<double>(trials), p, four_sigma(trials, p));
}

}  // namespace ddl
