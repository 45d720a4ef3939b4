#include "study/nelder_mead.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace ddl {
namespace {

using Point = std::vector<double>;

// Rosenbrock's valley from the usual start; the lowest point is (1, 1).
TEST(NelderMead, FollowsACurvedValley) {
  const auto valley = [](const Point& x) {
    return 100 * std::pow(x[1] - x[0] * x[0], 2) + std::pow(1 - x[0], 2);
  };
  const LowestPoint found = nelder_mead(valley, {-1.2, 1}, 0.1, 1e-8, 2000);
  EXPECT_NEAR(found.x[0], 1, 1e-6);
  EXPECT_NEAR(found.x[1], 1, 1e-6);
  EXPECT_LT(found.value, 1e-12);
}

// Ten times as steep on the other side of 0. Beside it, a step reflects (and is worse than the worst), then contracts
// towards the best: two evaluations halve the edge. From an edge of 1 that is 20 for less than 0.001, after the four that
// find 0.
TEST(NelderMead, ContractsTowardsTheBetterSide) {
  Index used = 0;
  const auto wedge = [&](const Point& x) {
    ++used;
    return x[0] >= 0 ? x[0] : -10 * x[0];
  };
  const LowestPoint found = nelder_mead(wedge, {1}, 1, 1e-3, 1000);
  EXPECT_EQ(found.x[0], 0);
  EXPECT_LE(used, 4 + 20);
}

// Lowest at one point and flat elsewhere: every other corner halves its way to it, until all are within the tolerance.
TEST(NelderMead, ShrinksAroundALonelyPoint) {
  Index used = 0;
  const auto lonely = [&](const Point& x) {
    ++used;
    return x[0] == 3 && x[1] == 4 ? 0.0 : 1.0;
  };
  const LowestPoint found = nelder_mead(lonely, {3, 4}, 1, 1e-3, 1000);
  EXPECT_EQ(found.x, (Point{3, 4}));
  EXPECT_LE(used, 3 + 10 * 4);  // ten halvings of a reflection, a contraction and two corners
}

// Downhill for ever: steps grow by expansion, until the evaluations are used up.
TEST(NelderMead, ExpandsUntilItsEvaluationsAreUsedUp) {
  Index used = 0;
  const auto slope = [&](const Point& x) {
    ++used;
    return -x[0];
  };
  EXPECT_GT(nelder_mead(slope, {0}, 1, 1e-9, 50).x[0], 1e6);
  EXPECT_LE(used, 53);
}

}  // namespace
}  // namespace ddl
