// The learning rate as a function of the step.
#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>

#include "train/run_config.h"

namespace ddl {

// Of update `step` (0 is the first): a linear rise over the warm-up, whose last step has the peak (or, where it
// starts at zero, the step after it), then the cosine down to min_lr at the last step, or the peak throughout.
inline double learning_rate(const TrainConfig& c, Index step) {
  const Index risen = c.warmup_start == "zero" ? step : step + 1;
  if (step < c.warmup) return c.lr * static_cast<double>(risen) / static_cast<double>(c.warmup);
  if (c.schedule == "constant") return c.lr;
  const Index span = std::max<Index>(1, c.steps - c.warmup);
  const double done = std::min(1.0, static_cast<double>(step - c.warmup) / static_cast<double>(span));
  return c.min_lr + 0.5 * (c.lr - c.min_lr) * (1 + std::cos(std::numbers::pi * done));
}

}  // namespace ddl
