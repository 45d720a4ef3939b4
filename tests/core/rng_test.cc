// Random numbers: known answers, streams, moments.
#include "core/rng.h"

#include <gtest/gtest.h>

#include <cmath>

namespace ddl {
namespace {

// Known answers of Philox4x32-10 from the authors' Random123 distribution.
TEST(Rng, PhiloxKnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (Philox4{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}));
  EXPECT_EQ(philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (Philox4{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}));
}

TEST(Rng, StreamsDifferAndMomentsAreRight) {
  const Random a(1, "weights"), b(1, "data");
  EXPECT_NE(a.bits(0), b.bits(0));
  EXPECT_EQ(a.bits(7), Random(1, "weights").bits(7));
  const int n = 200000;
  double sum = 0, squares = 0, uniform = 0;
  for (int i = 0; i < n; ++i) {
    const double x = a.normal(i);
    sum += x, squares += x * x, uniform += a.uniform(i);
    ASSERT_LT(b.below(i, 7), 7u);
  }
  // Five standard errors of each mean.
  EXPECT_NEAR(sum / n, 0, 5 / std::sqrt(n));
  EXPECT_NEAR(squares / n, 1, 5 * std::sqrt(2.0 / n));
  EXPECT_NEAR(uniform / n, 0.5, 5 * std::sqrt(1.0 / 12 / n));
}

}  // namespace
}  // namespace ddl
