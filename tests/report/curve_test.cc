#include "report/curve.h"

#include <gtest/gtest.h>

#include <cmath>

namespace ddl {
namespace {

Curve curve_of(const std::vector<double>& y) {
  Curve curve;
  for (std::size_t i = 0; i < y.size(); ++i) {
    const double at = static_cast<double>(i);
    curve.add(10 * at, 100 * at, at, y[i]);
  }
  return curve;
}

TEST(ReportCurve, AFewPointsStayAsTheyAre) {
  EXPECT_EQ(bin_size(0), 1u);
  EXPECT_EQ(bin_size(500), 1u);
  EXPECT_EQ(bin_size(501), 2u);
  EXPECT_EQ(bin_size(10, 3), 4u);
  const Curve curve = thinned(curve_of({1, 2, 3}), 1);
  EXPECT_EQ(curve.y, (std::vector<double>{1, 2, 3}));
  EXPECT_TRUE(curve.lo.empty());
}

TEST(ReportCurve, APointIsTheMeanOfItsBinWithTheExtremes) {
  const Curve curve = thinned(curve_of({1, 5, 3, 10, 20, 30, 7}), 3);
  EXPECT_EQ(curve.y, (std::vector<double>{3, 20, 7}));
  EXPECT_EQ(curve.lo, (std::vector<double>{1, 10, 7}));
  EXPECT_EQ(curve.hi, (std::vector<double>{5, 30, 7}));
  EXPECT_EQ(curve.tokens, (std::vector<double>{10, 40, 60}));
  EXPECT_EQ(curve.flops, (std::vector<double>{100, 400, 600}));
  EXPECT_EQ(curve.seconds, (std::vector<double>{1, 4, 6}));
}

TEST(ReportCurve, WhatIsNotFiniteDoesNotSpoilItsBin) {
  const Curve curve = thinned(curve_of({NAN, 4, 6, NAN, INFINITY, NAN}), 3);
  EXPECT_EQ(curve.y[0], 5);
  EXPECT_EQ(curve.lo[0], 4);
  EXPECT_EQ(curve.hi[0], 6);
  EXPECT_TRUE(std::isnan(curve.y[1]) && std::isnan(curve.lo[1]) && std::isnan(curve.hi[1]));
}

TEST(ReportCurve, TheMeanOfSeedsHasABand) {
  Curve slow = curve_of({4, 8, NAN});
  for (double& s : slow.seconds) s *= 3;
  const Curve mean = mean_of({curve_of({2, 4, 1}), slow});
  EXPECT_EQ(mean.y[0], 3);
  EXPECT_EQ(mean.y[1], 6);
  EXPECT_TRUE(std::isnan(mean.y[2]) && std::isnan(mean.lo[2])) << "one seed has no value here";
  EXPECT_EQ(mean.lo[1], 4);
  EXPECT_EQ(mean.hi[1], 8);
  EXPECT_EQ(mean.seconds[1], 2);
  EXPECT_EQ(mean.tokens[1], 10);
  EXPECT_EQ(mean_of({curve_of({2})}).lo.size(), 0u) << "one seed has no band";
}

}  // namespace
}  // namespace ddl
