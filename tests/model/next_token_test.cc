#include "model/next_token.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace ddl {
namespace {

TEST(NextToken, TheFirstOfEqualsIsTheMostLikely) {
  const std::vector<float> logits = {1, 3, 2, 3};
  const NextToken next = next_token(logits);
  EXPECT_TRUE(next.is_most_likely(1));
  EXPECT_FALSE(next.is_most_likely(3));
  EXPECT_FALSE(next.is_most_likely(0));
}

TEST(NextToken, ProbabilitiesAreTheSoftmaxOfScaledLogits) {
  const std::vector<float> logits = {2000, 2004, 1998}, halves = {1000, 1002, 999};
  const double sum = 1 + std::exp(-2.0) + std::exp(-3.0);
  const NextToken scaled{logits, 0.5f, 2004, std::log(sum)}, plain = next_token(halves);
  for (std::int32_t token = 0; token < 3; ++token) {
    const double log_p = static_cast<double>(halves[token]) - 1002 - std::log(sum);
    EXPECT_NEAR(plain.log_probability(token), log_p, 1e-14);
    EXPECT_NEAR(scaled.log_probability(token), log_p, 1e-14);
  }
}

}  // namespace
}  // namespace ddl
