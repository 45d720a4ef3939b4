// The learning-rate range test: a few steps whose rate grows from one to the next, and the loss after each.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/exec.h"
#include "core/record.h"
#include "train/run.h"
#include "train/signals.h"

namespace ddl {

struct FindLrOptions {
  Index steps = 100;
  double low = 1e-6, high = 1;  // of the rate
};

struct FindLrResult {
  struct Point {
    double lr = 0, loss = 0, smooth = 0;
  };
  std::vector<Point> points;
  double lowest_lr = 0, suggested = 0;  // 0 where the loss never fell
  bool diverged = false;                // it ended before the highest rate

  Json json() const;
  std::string screen() const;  // a table, a curve and the suggestion
};

// Trains fresh weights of the requested configuration, and writes nothing. It ends early where the loss is not
// finite or far above its lowest. Throws UserError where the request speaks of a run (out, resume, from).
FindLrResult find_learning_rate(const RunRequest& request, const FindLrOptions& options,
                                const std::function<void(Index step, const FindLrResult::Point&)>& on_step,
                                const StopSignals& signals, const Exec& ex);

// Of points with growing rates: the rate of steepest fall, at most a third of the rate with the lowest loss, as a
// round number. Fills in everything but the points.
void suggest_rate(FindLrResult& result);

}  // namespace ddl
