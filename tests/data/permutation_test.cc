// Orders that are functions of a seed: every element once, in no order one could tell.
#include "data/permutation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <utility>

namespace ddl {
namespace {

TEST(Permutation, IsOneForEverySize) {
  for (Index n = 1; n <= 300; ++n)
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
      const Permutation order(n, seed, 5);
      std::set<Index> seen;
      for (Index i = 0; i < n; ++i) seen.insert(order(i));
      ASSERT_EQ(std::ssize(seen), n);
      ASSERT_EQ(*seen.begin(), 0);
      ASSERT_EQ(*seen.rbegin(), n - 1);
    }
  const Permutation huge(Index{1} << 40, 1, 1);
  EXPECT_NE(huge(0), huge(1));
  EXPECT_LT(huge((Index{1} << 40) - 1), Index{1} << 40);
}

// Over many orders each element is in each place equally often, and neighbours do not stay neighbours.
TEST(Permutation, LooksRandom) {
  const Index n = 10;
  const int orders = 20000;
  std::map<std::pair<Index, Index>, int> count;
  int neighbours = 0;
  for (int s = 0; s < orders; ++s) {
    const Permutation order(n, 42, static_cast<std::uint64_t>(s));
    for (Index i = 0; i < n; ++i) ++count[{i, order(i)}];
    for (Index i = 0; i + 1 < n; ++i) neighbours += order(i + 1) == order(i) + 1;
  }
  const double expected = orders / static_cast<double>(n);
  double chi2 = 0;
  for (Index i = 0; i < n; ++i)
    for (Index j = 0; j < n; ++j) chi2 += (count[{i, j}] - expected) * (count[{i, j}] - expected) / expected;
  EXPECT_LT(chi2, 81 + 6 * std::sqrt(2 * 81.0));  // 81 degrees of freedom
  // A pair (j, j+1) follows in order with probability 1/n per place: (n-1) per order and n-1 places.
  EXPECT_NEAR(neighbours / static_cast<double>(orders), (n - 1) / static_cast<double>(n), 0.05);
}

}  // namespace
}  // namespace ddl
