#include "train/schedule.h"

#include <gtest/gtest.h>

namespace ddl {
namespace {

TEST(Schedule, RisesThenFollowsTheCosine) {
  TrainConfig c;
  c.lr = 2, c.min_lr = 0.5, c.warmup = 4, c.steps = 104;
  EXPECT_DOUBLE_EQ(learning_rate(c, 0), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(c, 3), 2);
  EXPECT_DOUBLE_EQ(learning_rate(c, 4), 2);
  EXPECT_DOUBLE_EQ(learning_rate(c, 54), 1.25);  // half way
  EXPECT_NEAR(learning_rate(c, 29), 0.5 + 0.75 * (1 + std::sqrt(0.5)), 1e-12);
  EXPECT_DOUBLE_EQ(learning_rate(c, 104), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(c, 1000), 0.5);  // stays there
  c.schedule = "constant";
  EXPECT_DOUBLE_EQ(learning_rate(c, 90), 2);
  c.warmup = 0;
  EXPECT_DOUBLE_EQ(learning_rate(c, 0), 2);
}

}  // namespace
}  // namespace ddl
