#include "study/paired.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <boost/math/distributions/normal.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "study/simulated_study.h"

namespace ddl {
namespace {

// Student's sleep data (Biometrika 6, 1908), the second drug minus the first. R's t.test(..., paired = TRUE) prints
// t = 4.0621, df = 9, p-value = 0.002833, interval 0.7001142 to 2.4598858, mean 1.58.
const std::vector<double> kSleep = {1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4};

TEST(Paired, StudentsSleepData) {
  const PairedResult result = paired_result(kSleep);
  EXPECT_EQ(result.n, 10);
  EXPECT_NEAR(result.mean, 1.58, 1e-12);
  EXPECT_NEAR(result.mean / result.standard_error, 4.0621, 5e-5);
  EXPECT_NEAR(result.p, 0.002833, 5e-7);
  EXPECT_NEAR(result.t.low, 0.7001142, 5e-8);
  EXPECT_NEAR(result.t.high, 2.4598858, 5e-8);
  // t_(9, 0.995) = 3.249836 (any table).
  EXPECT_NEAR(paired_t(kSleep, 0.99).t.high - 1.58, 3.249836 * result.standard_error, 1e-6);
}

// The values are skewed to the right: BCa moves both ends up from the plain percentiles, which lie
// 1.96 sd sqrt((n-1)/n) / sqrt(n) = 0.723 around the mean but for the skew.
TEST(Paired, BootstrapFollowsTheSkew) {
  const PairedResult result = paired_result(kSleep, 0.95, 20000);
  EXPECT_GT(result.bootstrap.low, 1.58 - 0.723);
  EXPECT_GT(result.bootstrap.high, 1.58 + 0.723);
  EXPECT_LT(result.bootstrap.high, 1.58 + 2 * 0.723);
  std::vector<double> mirrored;
  for (const double d : kSleep) mirrored.push_back(-d);
  const PairedResult other = paired_result(mirrored, 0.95, 20000);
  EXPECT_NEAR(other.bootstrap.low, -result.bootstrap.high, 0.03);
  EXPECT_NEAR(other.bootstrap.high, -result.bootstrap.low, 0.03);
}

// Efron's formulas on all 6^6 resamples of a very skewed sample: what drawing many of them must come near.
TEST(Paired, BootstrapIsBcaOfAllResamples) {
  const std::vector<double> values = {0, 0.1, 0.3, 0.5, 2, 6};
  const double mean = 8.9 / 6;
  std::vector<double> means;
  for (int code = 0; code < 46656; ++code) {
    double sum = 0;
    for (int i = 0, rest = code; i < 6; ++i, rest /= 6) sum += values[static_cast<std::size_t>(rest % 6)];
    means.push_back(sum / 6);
  }
  std::sort(means.begin(), means.end());
  double below = 0, squares = 0, cubes = 0;
  for (const double m : means) below += m < mean - 1e-9 ? 1 : m < mean + 1e-9 ? 0.5 : 0;
  for (const double v : values) squares += std::pow(mean - v, 2), cubes += std::pow(mean - v, 3);
  const double a =
      -cubes / (6 * std::pow(squares, 1.5));  // of the means without v, which lie on its other side
  const boost::math::normal normal;
  const double z0 = boost::math::quantile(normal, below / 46656);
  ASSERT_GT(a, 0.05);
  ASSERT_GT(z0, 0.05);
  const auto percentile = [&](double z) {
    const double share = boost::math::cdf(normal, z0 + (z0 + z) / (1 - a * (z0 + z)));
    return means[static_cast<std::size_t>(share * 46656)];
  };
  const Interval found = paired_result(values, 0.95, 200000).bootstrap;
  EXPECT_NEAR(found.low, percentile(-1.959964), 0.03);
  EXPECT_NEAR(found.high, percentile(1.959964), 0.03);
}

TEST(Paired, BootstrapIsAFunctionOfItsSeed) {
  const PairedResult a = paired_result(kSleep, 0.95, 1000, 1), b = paired_result(kSleep, 0.95, 1000, 1),
                     c = paired_result(kSleep, 0.95, 1000, 2);
  EXPECT_EQ(a.bootstrap.low, b.bootstrap.low);
  EXPECT_TRUE(a.bootstrap.low != c.bootstrap.low || a.bootstrap.high != c.bootstrap.high);
}

TEST(Paired, NothingIsConcludedFromNothing) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const std::vector<double>& differences :
       {std::vector<double>{}, {0.3}, {0.1, infinity, 0.2}, {0.1, std::nan(""), 0.2}}) {
    const PairedResult result = paired_result(differences);
    EXPECT_EQ(result.p, 1);
    EXPECT_EQ(result.t.low, -infinity);
    EXPECT_EQ(result.t.high, infinity);
    EXPECT_EQ(result.bootstrap.high, infinity);
    EXPECT_EQ(result.non_finite, differences.size() == 3 ? 1 : 0);
  }
}

TEST(Paired, EqualDifferences) {
  const PairedResult zero = paired_result(std::vector{0.0, 0.0, 0.0});
  EXPECT_EQ(zero.p, 1);
  EXPECT_EQ(zero.t.low, 0);
  const PairedResult some = paired_result(std::vector{0.25, 0.25, 0.25});
  EXPECT_EQ(some.p, 1);  // their spread is not known
  EXPECT_EQ(some.t.high, std::numeric_limits<double>::infinity());
  EXPECT_EQ(some.bootstrap.low, 0.25);
  EXPECT_EQ(some.bootstrap.high, 0.25);
}

// 2,000 studies of 12 pairs with a true difference of 0.3 sd. Bounds: 4 standard deviations of the binomial count.
TEST(Paired, CoverageAndLevel) {
  constexpr Index kStudies = 2000;
  Index t_covers = 0, bootstrap_covers = 0, false_positives = 0;
  for (Index s = 0; s < kStudies; ++s) {
    const std::vector<double> differences = simulated_differences(1, s, 12, 0.3);
    const PairedResult result = paired_result(differences, 0.95, 400, static_cast<std::uint64_t>(s));
    t_covers += result.t.contains(0.3);
    bootstrap_covers += result.bootstrap.contains(0.3);
    false_positives += paired_t(simulated_differences(2, s, 12, 0)).p <= 0.05;
  }
  expect_binomial(t_covers, kStudies, 0.95);
  expect_binomial(false_positives, kStudies, 0.05);
  // Resampling sees the standard deviation sqrt(11/12) sd: it covers P(|t_11| < 1.96 sqrt(11/12)) = 0.9127.
  // One point is allowed for the discrete resamples on top.
  EXPECT_NEAR(static_cast<double>(bootstrap_covers) / kStudies, 0.9127, 0.01 + four_sigma(kStudies, 0.9127));
}

// Power of the t test at n = 12, a difference of one sd, level 5%: 0.883 (noncentral t; R's
// power.t.test(n = 12, delta = 1, sd = 1, type = "paired")).
TEST(Paired, Power) {
  constexpr Index kStudies = 2000;
  Index found = 0;
  for (Index s = 0; s < kStudies; ++s) found += paired_t(simulated_differences(3, s, 12, 1)).p <= 0.05;
  expect_binomial(found, kStudies, 0.883);
}

}  // namespace
}  // namespace ddl
