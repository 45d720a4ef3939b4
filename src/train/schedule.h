// The learning rate as a function of the step.
#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>

#include "train/run_config.h"

namespace ddl {

// The first update of the cool-down; -1 where the schedule has none. Before it the rate does not depend on how long
// the run is: longer runs can branch off here.
inline Index cooldown_start(const TrainConfig& c) {
  if (c.schedule != Schedule::kCooldown) return -1;
  const auto updates = static_cast<Index>(std::llround(c.cooldown * static_cast<double>(c.steps)));
  return std::max(c.warmup, c.steps - updates);
}

// Of update `step` (0 is the first): a linear rise over the warm-up, whose last step has the peak (or, where it
// starts at zero, the step after it), then the cosine down to min_lr at the last step, or the peak throughout, or the
// peak and a straight line down to min_lr.
inline double learning_rate(const TrainConfig& c, Index step) {
  const Index risen = c.warmup_start == WarmupStart::kZero ? step : step + 1;
  if (step < c.warmup) return c.lr * static_cast<double>(risen) / static_cast<double>(c.warmup);
  if (c.schedule == Schedule::kConstant) return c.lr;
  if (c.schedule == Schedule::kCooldown) {
    const Index start = cooldown_start(c);
    if (step < start) return c.lr;
    const double left =
        static_cast<double>(std::max<Index>(0, c.steps - step)) / static_cast<double>(c.steps - start);
    return c.min_lr + (c.lr - c.min_lr) * left;
  }
  const Index span = std::max<Index>(1, c.steps - c.warmup);
  const double done = std::min(1.0, static_cast<double>(step - c.warmup) / static_cast<double>(span));
  return c.min_lr + 0.5 * (c.lr - c.min_lr) * (1 + std::cos(std::numbers::pi * done));
}

}  // namespace ddl
