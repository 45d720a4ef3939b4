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
  c.schedule = Schedule::kConstant;
  EXPECT_DOUBLE_EQ(learning_rate(c, 90), 2);
  c.warmup = 0;
  EXPECT_DOUBLE_EQ(learning_rate(c, 0), 2);
}

TEST(Schedule, CoolsDownAtTheEndAndIsTheSameForEveryLengthBefore) {
  TrainConfig c;
  c.lr = 2, c.min_lr = 0.5, c.warmup = 4, c.steps = 100, c.schedule = Schedule::kCooldown, c.cooldown = 0.2;
  EXPECT_EQ(cooldown_start(c), 80);
  EXPECT_DOUBLE_EQ(learning_rate(c, 1), 1);
  EXPECT_DOUBLE_EQ(learning_rate(c, 79), 2);
  EXPECT_DOUBLE_EQ(learning_rate(c, 80), 2);
  EXPECT_DOUBLE_EQ(learning_rate(c, 90), 1.25);
  EXPECT_DOUBLE_EQ(learning_rate(c, 99), 0.5 + 1.5 / 20);
  EXPECT_DOUBLE_EQ(learning_rate(c, 100), 0.5);
  TrainConfig longer = c;
  longer.steps = 200;
  for (Index step = 0; step < 80; ++step) EXPECT_EQ(learning_rate(c, step), learning_rate(longer, step));
  c.cooldown = 1;
  EXPECT_EQ(cooldown_start(c), 4);  // not before the warm-up is over
  c.schedule = Schedule::kCosine;
  EXPECT_EQ(cooldown_start(c), -1);
}

}  // namespace
}  // namespace ddl
