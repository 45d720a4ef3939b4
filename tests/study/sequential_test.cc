#include "study/sequential.h"

#include <gtest/gtest.h>

#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <cstdint>
#include <map>
#include <vector>

#include "core/error.h"
#include "study/simulated_study.h"

namespace ddl {
namespace {

// Differences around `mean`, alternating, with a known t: sd = spread * sqrt(n / (n - 1)).
std::vector<double> alternating(Index pairs, double mean, double spread) {
  std::vector<double> d;
  for (Index i = 0; i < pairs; ++i) d.push_back(mean + (i % 2 ? -spread : spread));
  return d;
}

// t = mean / (sd / 2) with sd = spread * sqrt(4/3): for four pairs t = sqrt(3) mean / spread. p <= 0.0005 with 3
// degrees of freedom is |t| >= 16.3263, from their closed form 1/2 + (u / (1 + u^2) + atan u) / pi, u = t / sqrt(3).
TEST(Sequential, FirstLookNeedsALargeT) {
  const std::vector<Look> looks = standard_looks();
  for (const double sign : {-1.0, 1.0}) {
    const double just = 16.327 / std::sqrt(3.0), short_of = 16.325 / std::sqrt(3.0);
    const SequentialResult yes = decide(alternating(4, sign * just, 1), looks, 0.01);
    EXPECT_EQ(yes.verdict, sign < 0 ? Verdict::kBetter : Verdict::kWorse);
    EXPECT_EQ(yes.look, 1);
    EXPECT_EQ(yes.pairs, 4);
    EXPECT_EQ(yes.next_pairs, 0);
    EXPECT_FALSE(yes.interval.contains(0));
    const SequentialResult no = decide(alternating(4, sign * short_of, 1), looks, 0.01);
    EXPECT_EQ(no.verdict, Verdict::kUndecided);
    EXPECT_EQ(no.next_pairs, 8);
    EXPECT_TRUE(no.interval.contains(0));
  }
}

TEST(Sequential, OnlyCompleteLooksCount) {
  const std::vector<Look> looks = standard_looks();
  const std::vector<double> clear = alternating(12, -1, 0.01);
  for (Index n = 0; n <= 12; ++n) {
    const SequentialResult result = decide(std::span(clear).first(static_cast<std::size_t>(n)), looks, 0.1);
    EXPECT_EQ(result.verdict, n < 4 ? Verdict::kUndecided : Verdict::kBetter) << n;
    EXPECT_EQ(result.look, n < 4 ? 0 : 1);
    EXPECT_EQ(result.next_pairs, n < 4 ? 4 : 0);
  }
}

// What comes after a verdict does not change it, nor do pairs between two looks.
TEST(Sequential, AVerdictStands) {
  const std::vector<Look> looks = standard_looks();
  std::vector<double> d = alternating(4, -1, 0.01);
  d.insert(d.end(), 8, 50.0);
  EXPECT_EQ(decide(d, looks, 0.1).verdict, Verdict::kBetter);
  std::vector<double> open = alternating(4, 0, 1);
  open.insert(open.end(), 3, 1000.0);
  const SequentialResult between = decide(open, looks, 0.1);
  EXPECT_EQ(between.pairs, 4);
  EXPECT_EQ(between.mean, 0);
  EXPECT_EQ(between.next_pairs, 8);
}

// The interval of level 1 - 2 * 0.014 of eight alternating values around 0: t_(7, 0.986) = 2.762375 times spread *
// sqrt(8/7) / sqrt(8).
TEST(Sequential, EquivalentInsideTheMargin) {
  const std::vector<Look> looks = {{8, 0.014}, {12, 0.045}};
  const double reach = 2.762375 / std::sqrt(7.0);
  const std::vector<double> d = alternating(8, 0, 1);
  EXPECT_EQ(decide(d, looks, reach * 1.0001).verdict, Verdict::kEquivalent);
  EXPECT_EQ(decide(d, looks, reach * 0.9999).verdict, Verdict::kUndecided);
  EXPECT_EQ(decide(d, looks, 0).verdict, Verdict::kUndecided);
  // Both hold: a difference, though one inside the margin. It is called by its name; the interval says how small.
  const SequentialResult small = decide(alternating(8, -0.01, 0.001), looks, 0.1);
  EXPECT_EQ(small.verdict, Verdict::kBetter);
  EXPECT_TRUE(small.interval.inside(-0.1, 0));
}

TEST(Sequential, ADivergedRunDecidesNothing) {
  std::vector<double> d = alternating(12, -1, 0.01);
  d[2] = std::nan("");
  const SequentialResult result = decide(d, standard_looks(), 0.1);
  EXPECT_EQ(result.verdict, Verdict::kUndecided);
  EXPECT_EQ(result.look, 3);
  EXPECT_EQ(result.next_pairs, 0);
}

TEST(Sequential, RefusesImpossibleLooks) {
  const std::vector<double> d(12);
  EXPECT_THROW(decide(d, std::vector<Look>{}, 0.1), UserError);
  EXPECT_THROW(decide(d, std::vector<Look>{{1, 0.05}}, 0.1), UserError);
  EXPECT_THROW(decide(d, std::vector<Look>{{8, 0.01}, {8, 0.05}}, 0.1), UserError);
  EXPECT_THROW(decide(d, std::vector<Look>{{8, 0}}, 0.1), UserError);
  EXPECT_THROW(decide(d, std::vector<Look>{{8, 0.5}}, 0.1), UserError);
  EXPECT_THROW(decide(d, standard_looks(), -0.1), UserError);
}

// How often a comparison without any difference ends as better or worse by this look, from 1: the p-value over all looks
// of a result that is exactly at the look's limit.
double level_spent(const std::vector<Look>& looks, Index look, Index studies, std::uint64_t seed) {
  const auto& [pairs, nominal_p] = looks[static_cast<std::size_t>(look - 1)];
  const boost::math::students_t t(static_cast<double>(pairs - 1));
  SequentialResult limit;
  limit.look = look;
  limit.t = boost::math::quantile(boost::math::complement(t, nominal_p / 2));
  limit.p = nominal_p;
  return overall_p(limit, looks, studies, seed);
}

// One look must hold its nominal level, and three looks at 5% each must not hold 5% (Armitage, McPherson and Rowe,
// JRSS A 132, 1969: 10.7% with known variance).
TEST(Sequential, TheCheckOfLevelsCanFail) {
  constexpr Index kStudies = 20000;
  EXPECT_NEAR(level_spent({{8, 0.03}}, 1, kStudies, 1), 0.03, four_sigma(kStudies, 0.03));
  EXPECT_GT(level_spent({{4, 0.05}, {8, 0.05}, {12, 0.05}}, 3, kStudies, 1), 0.09);
}

// With known variances the looks would hold 5%; with t quantiles they hold 5.27% (0.0005 + 0.014 + 0.038; simulation error
// 0.05 points).
TEST(Sequential, WhatTheStandardLooksHold) {
  constexpr Index kStudies = 200000;
  EXPECT_NEAR(level_spent(standard_looks(), 1, kStudies, 2), 0.0005,
              four_sigma(kStudies, 0.0005));  // exactly its nominal p
  EXPECT_NEAR(level_spent(standard_looks(), 3, kStudies, 2), 0.0527, four_sigma(kStudies, 0.0527));
}

struct Outcomes {
  std::map<Verdict, double> share;
  double mean_pairs = 0;
  Index studies = 0, covered = 0;
};
Outcomes simulate(std::uint64_t seed, double effect, double margin) {
  Outcomes outcomes;
  outcomes.studies = 2000;
  const double weight = 1.0 / static_cast<double>(outcomes.studies);
  for (Index s = 0; s < outcomes.studies; ++s) {
    const SequentialResult r = decide(simulated_differences(seed, s, 12, effect), standard_looks(), margin);
    outcomes.share[r.verdict] += weight;
    outcomes.mean_pairs += weight * static_cast<double>(r.pairs);
    outcomes.covered += r.interval.contains(effect);
  }
  return outcomes;
}

// 2,000 studies with no effect: false positives at the level above, on both sides alike.
TEST(Sequential, NoEffectNoVerdict) {
  Outcomes none = simulate(20, 0, 0);
  EXPECT_NEAR(none.share[Verdict::kBetter] + none.share[Verdict::kWorse], 0.0527,
              four_sigma(none.studies, 0.0527));
  EXPECT_NEAR(none.share[Verdict::kBetter], 0.0527 / 2, four_sigma(none.studies, 0.0527 / 2));
  EXPECT_EQ(none.share[Verdict::kEquivalent], 0);
}

// An effect of one sd: a single test of 12 pairs at 5% finds 88.3% (paired_test.cc). Looking early costs little of
// that, saves pairs, and never turns the sign round. The intervals cover whenever one stops.
TEST(Sequential, FindsEffectsEarlier) {
  Outcomes one = simulate(21, -1, 0);
  EXPECT_GT(one.share[Verdict::kBetter], 0.883 - 0.03 - four_sigma(one.studies, 0.883));
  EXPECT_LT(one.share[Verdict::kWorse], 0.002);
  EXPECT_LT(one.mean_pairs, 11);
  EXPECT_GE(static_cast<double>(one.covered) / static_cast<double>(one.studies),
            0.9473 - four_sigma(one.studies, 0.9473));
  Outcomes large = simulate(22, 3, 0);
  EXPECT_GT(large.share[Verdict::kWorse], 0.999);
  EXPECT_LE(large.mean_pairs, 8.1);
}

// No effect and a wide margin: equivalent, before the last look as a rule. An effect at the margin itself: the one-sided
// level of the looks, 5.27% (one side of twice the nominal p), and no more.
TEST(Sequential, Equivalence) {
  Outcomes same = simulate(23, 0, 1.5);
  EXPECT_GT(same.share[Verdict::kEquivalent], 0.9);
  EXPECT_LT(same.mean_pairs, 9);
  Outcomes at_margin = simulate(24, 0.9, 0.9);
  EXPECT_LE(at_margin.share[Verdict::kEquivalent], 0.0527 + four_sigma(at_margin.studies, 0.0527));
  EXPECT_GT(at_margin.share[Verdict::kEquivalent], 0.01);
}

// Uniform without a difference: 5% of the studies have an overall p of at most 5%, though the nominal p is that low
// more often. Where the first look decides, nominal and overall are the same.
TEST(Sequential, OverallP) {
  constexpr Index kStudies = 400;
  const std::vector<Look> looks = {{4, 0.03}, {8, 0.03}};
  Index overall = 0;
  for (Index s = 0; s < kStudies; ++s)
    overall += overall_p(decide(simulated_differences(25, s, 8, 0), looks, 0), looks, 2000, 1) <= 0.05;
  expect_binomial(overall, kStudies, 0.05);

  SequentialResult first = decide(alternating(4, 4, 1), looks, 0);
  ASSERT_EQ(first.look, 1);
  EXPECT_NEAR(overall_p(first, looks), first.p, four_sigma(200000, first.p));
  SequentialResult second = decide(alternating(8, 1.5, 1), looks, 0);
  ASSERT_EQ(second.look, 2);
  ASSERT_LT(second.p, 0.01);
  EXPECT_GT(overall_p(second, looks), 0.03);  // what the first look alone has spent
  EXPECT_LT(overall_p(second, looks), 0.03 + second.p + four_sigma(200000, 0.06));
  EXPECT_EQ(overall_p(SequentialResult{}, looks), 1);
}

}  // namespace
}  // namespace ddl
