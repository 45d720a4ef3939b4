// What is made of tuning runs: the expected best of n, and the optimum of a grid of learning rates.
#include "study/rate_optimum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "core/error.h"
#include "study/best_of_n.h"
#include "study/simulated_study.h"

namespace ddl {
namespace {

constexpr double kDivergedRun = std::numeric_limits<double>::infinity();

// The definition: the mean of the minimum over all subsets of size n.
TEST(BestOfN, IsTheMeanOverAllSubsets) {
  const std::vector<double> losses = {4.9, 4.6, 4.5, 4.4, 4.7, 4.5, 5.3};
  const std::vector<double> best = expected_best(losses);
  ASSERT_EQ(best.size(), losses.size());
  for (std::size_t n = 1; n <= losses.size(); ++n) {
    double total = 0;
    int subsets = 0;
    for (unsigned set = 1; set < 1u << losses.size(); ++set) {
      if (std::popcount(set) != static_cast<int>(n)) continue;
      double lowest = kDivergedRun;
      for (std::size_t i = 0; i < losses.size(); ++i)
        if (set >> i & 1) lowest = std::min(lowest, losses[i]);
      total += lowest;
      ++subsets;
    }
    EXPECT_NEAR(best[n - 1], total / subsets, 1e-12) << n;
  }
}

TEST(BestOfN, DivergedTrialsAreInfinite) {
  const std::vector<double> best = expected_best(std::vector{3.0, std::nan(""), 4.0, kDivergedRun});
  EXPECT_EQ(best[0], kDivergedRun);
  EXPECT_EQ(best[1], kDivergedRun);  // both diverged ones may be drawn
  EXPECT_NEAR(best[2], 3 * 3.0 / 4 + 4.0 / 4, 1e-12);
  EXPECT_EQ(best[3], 3);
  EXPECT_TRUE(expected_best(std::vector<double>{}).empty());
}

// Uniform losses on [0, 1]: the minimum of n new ones has mean 1 / (n + 1). The estimate with replacement would be too
// high: its minimum of 5 out of 10 repeats values. Bound: 4 standard errors, sd below 0.1 each.
TEST(BestOfN, Unbiased) {
  constexpr Index kStudies = 2000;
  double mean = 0;
  for (Index s = 0; s < kStudies; ++s) {
    const Random random(30, static_cast<std::uint64_t>(s));
    std::vector<double> losses;
    for (std::uint64_t i = 0; i < 10; ++i) losses.push_back(random.uniform(i));
    mean += expected_best(losses)[4] / kStudies;
  }
  EXPECT_NEAR(mean, 1.0 / 6, 4 * 0.1 / std::sqrt(static_cast<double>(kStudies)));
}

RatePoint on_parabola(double rate, double best_rate) {
  const double x = std::log2(rate / best_rate);
  return {rate, 4.3 + 0.2 * x * x};
}

TEST(RateOptimum, FindsTheVertex) {
  for (const double best : {0.0031, 0.004, 0.0055}) {
    std::vector<RatePoint> points;
    for (const double rate : {0.016, 0.001, 0.008, 0.002, 0.004}) points.push_back(on_parabola(rate, best));
    const RateOptimum optimum = rate_optimum(points);
    EXPECT_TRUE(optimum.inside && optimum.fitted);
    EXPECT_EQ(optimum.best, 4);
    EXPECT_NEAR(optimum.rate, best, 1e-9);
    EXPECT_NEAR(optimum.loss, 4.3, 1e-12);
  }
  // Uneven spacing, and points far off that bend otherwise.
  const std::vector<RatePoint> uneven = {{1e-5, 9},
                                         on_parabola(0.001, 0.0031),
                                         on_parabola(0.004, 0.0031),
                                         on_parabola(0.008, 0.0031),
                                         {0.1, 5}};
  EXPECT_NEAR(rate_optimum(uneven).rate, 0.0031, 1e-9);
}

TEST(RateOptimum, AtAnEndOfTheGridTheBestPointItself) {
  const std::vector<RatePoint> falling = {{0.001, 5}, {0.002, 4.8}, {0.004, 4.7}};
  EXPECT_FALSE(rate_optimum(falling).inside);
  EXPECT_EQ(rate_optimum(falling).rate, 0.004);
  const std::vector<RatePoint> rising = {{0.004, 5}, {0.002, 4.8}, {0.001, 4.7}};
  EXPECT_FALSE(rate_optimum(rising).inside);
  EXPECT_EQ(rate_optimum(rising).rate, 0.001);
}

TEST(RateOptimum, DivergedNeighboursAndFlatGrids) {
  // Best next to a rate that diverged: inside the grid, but no parabola.
  const RateOptimum edge =
      rate_optimum(std::vector<RatePoint>{{0.001, 5}, {0.002, 4.8}, {0.004, std::nan("")}});
  EXPECT_TRUE(edge.inside);
  EXPECT_FALSE(edge.fitted);
  EXPECT_EQ(edge.rate, 0.002);
  EXPECT_EQ(edge.loss, 4.8);
  // The same the other way round: a diverged low rate must not be taken for the best.
  EXPECT_EQ(rate_optimum(std::vector<RatePoint>{{0.001, -kDivergedRun}, {0.002, 4.8}, {0.004, 5}}).rate,
            0.002);
  // Equal losses have no curvature; the lowest rate of equal ones is the best.
  const std::vector<RatePoint> flat = {{0.001, 5}, {0.002, 5}, {0.004, 5}};
  EXPECT_FALSE(rate_optimum(flat).fitted);
  EXPECT_EQ(rate_optimum(flat).rate, 0.001);
  const RateOptimum none = rate_optimum(std::vector<RatePoint>{{0.001, kDivergedRun}, {0.002, kDivergedRun}});
  EXPECT_FALSE(none.inside);
  EXPECT_EQ(none.loss, kDivergedRun);
}

TEST(RateOptimum, MeansAndRefusals) {
  EXPECT_EQ(mean_over_seeds(0.1, std::vector{4.0, 5.0}).loss, 4.5);
  EXPECT_EQ(mean_over_seeds(0.1, std::vector{4.0, std::nan("")}).loss, kDivergedRun);
  EXPECT_EQ(mean_over_seeds(0.1, std::vector<double>{}).loss, kDivergedRun);
  EXPECT_THROW(rate_optimum(std::vector<RatePoint>{}), UserError);
  EXPECT_THROW(rate_optimum(std::vector<RatePoint>{{0.1, 4}, {0.1, 5}}), UserError);
  EXPECT_THROW(rate_optimum(std::vector<RatePoint>{{0, 4}, {0.1, 5}}), UserError);
}

}  // namespace
}  // namespace ddl
