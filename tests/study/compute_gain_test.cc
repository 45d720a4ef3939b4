#include "study/compute_gain.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace ddl {
namespace {

// loss = 5 - log2(compute): linear in log compute, so interpolation is exact.
const std::vector<ComputeLoss> kBaseline = {{1, 5}, {4, 3}, {16, 1}};

void expect_gain(ComputeLoss rule, double gain, GainBound bound) {
  const ComputeGain found = compute_gain(kBaseline, rule);
  EXPECT_NEAR(found.gain, gain, 1e-12);
  EXPECT_EQ(found.bound, bound);
}

TEST(ComputeGain, Interpolates) {
  expect_gain({4, 3}, 1, GainBound::kExact);
  expect_gain({4, 2}, 2, GainBound::kExact);                 // the baseline is there at 8
  expect_gain({4, 3.5}, std::sqrt(0.5), GainBound::kExact);  // at 4 / sqrt(2)
  expect_gain({2, 1}, 8, GainBound::kExact);                 // the last point itself
  expect_gain({2, 5}, 0.5, GainBound::kExact);               // the first
}

TEST(ComputeGain, BeyondTheCurveItIsABound) {
  expect_gain({4, 0.5}, 4, GainBound::kAtLeast);
  expect_gain({4, 6}, 0.25, GainBound::kAtMost);
  expect_gain({4, std::nan("")}, 0.25, GainBound::kAtMost);
  expect_gain({4, std::numeric_limits<double>::infinity()}, 0.25, GainBound::kAtMost);
}

// Order does not matter; a run that was worse than a smaller one is no part of the curve, nor one that diverged.
TEST(ComputeGain, TheCurveFalls) {
  const std::vector<ComputeLoss> messy = {{16, 1}, {1, 5},   {2, 9}, {8, std::nan("")},
                                          {4, 3},  {4, 3.5}, {6, 3}};
  EXPECT_NEAR(compute_gain(messy, {4, 2}).gain, 2, 1e-12);
  EXPECT_EQ(compute_gain(std::vector<ComputeLoss>{}, {1, 1}).bound, GainBound::kUnknown);
  EXPECT_EQ(compute_gain(std::vector<ComputeLoss>{{1, std::nan("")}}, {1, 1}).bound, GainBound::kUnknown);
}

}  // namespace
}  // namespace ddl
