// Nobody loses by tuning: every arm gets its own learning rate and, at the first size, its own scale of starting
// values. The search walks a grid of rates (a constant factor apart) and scales. It ends where the best cell has
// been compared with its neighbours in rate and in scale. So the best rate lies inside the grid, which grows as far as
// needed. A parabola in the logarithm of the rate then gives the rate of the confirmation.
#pragma once

#include <string>
#include <vector>

#include "study/rate_optimum.h"
#include "study/records.h"
#include "study/study_file.h"
#include "study/trial.h"

namespace ddl {

struct TuningCell {
  double rate = 0, scale = 1;
  std::vector<double> losses;  // one per tuning seed; infinite where it diverged
  double mean = 0;
};

struct Tuning {
  bool settled = false;   // rate and scale are final
  bool fixed = false;     // the study gives the rate
  bool at_limit = false;  // the grid grew as far as it may, and the best still lies at its end
  double rate = 0, scale = 1;
  std::vector<TuningCell> cells;  // complete ones, by scale and rate
  std::vector<Trial> missing;     // what to train next; empty where it is settled
};

// A function of the records alone. The validation loss decides, whatever the study's metric: it is smoother.
Tuning tune(const Study& study, const StudySize& size, const Arm& arm, const Records& records);

}  // namespace ddl
