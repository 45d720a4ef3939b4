#include "study/holm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "study/paired.h"
#include "study/simulated_study.h"

namespace ddl {
namespace {

// By hand: 4 * 0.01, then the largest so far of 3 * 0.02, 2 * 0.03, 1 * 0.04.
TEST(Holm, KnownValues) {
  const std::vector<double> p = {0.03, 0.01, 0.04, 0.02}, adjusted = holm_adjusted(p);
  const std::vector<double> expected = {0.06, 0.04, 0.06, 0.06};
  for (std::size_t i = 0; i < p.size(); ++i) EXPECT_NEAR(adjusted[i], expected[i], 1e-15);
  EXPECT_TRUE(holm_adjusted(std::vector<double>{}).empty());
  EXPECT_EQ(holm_adjusted(std::vector{0.03})[0], 0.03);
  EXPECT_EQ(holm_adjusted(std::vector{0.6, 0.7})[0], 1);
}

// Four questions that share a control (correlated 1/2). The chance of any false positive stays at most 5%: with no
// effect at all, and with two real effects, where plain Bonferroni and Holm part. The questions with a true
// null must also be rejected clearly more often than never, or a procedure that says no to everything would pass.
TEST(Holm, FamilyWiseLevelAndPower) {
  constexpr Index kStudies = 2000;
  for (const double effect : {0.0, 1.5}) {
    Index any_false = 0, found = 0, found_by_bonferroni = 0;
    for (Index s = 0; s < kStudies; ++s) {
      const std::vector<double> control = simulated_differences(10, s, 12, 0);
      std::vector<double> p;
      for (std::uint64_t question = 0; question < 4; ++question) {
        std::vector<double> d = simulated_differences(11 + question, s, 12, question < 2 ? effect : 0);
        for (std::size_t i = 0; i < d.size(); ++i) d[i] -= control[i];
        p.push_back(paired_t(d).p);
      }
      const std::vector<double> adjusted = holm_adjusted(p);
      bool wrong = adjusted[2] <= 0.05 || adjusted[3] <= 0.05;
      if (effect == 0) wrong = wrong || adjusted[0] <= 0.05 || adjusted[1] <= 0.05;
      any_false += wrong;
      found += adjusted[0] <= 0.05;
      found_by_bonferroni += p[0] <= 0.05 / 4;
    }
    EXPECT_LE(static_cast<double>(any_false) / kStudies, 0.05 + four_sigma(kStudies, 0.05));
    EXPECT_GE(static_cast<double>(any_false) / kStudies, 0.02);
    if (effect > 0) {
      EXPECT_GT(found, kStudies / 2);
      EXPECT_GT(found, found_by_bonferroni);
    }
  }
}

}  // namespace
}  // namespace ddl
