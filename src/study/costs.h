// What a study's trials cost: exact FLOPs from the shapes, and hours from the speed that runs have shown.
#pragma once

#include <map>
#include <string>
#include <tuple>

#include "core/exec.h"
#include "data/dataset.h"
#include "study/agenda.h"
#include "study/records.h"
#include "study/study_file.h"

namespace ddl {

struct TrialCost {
  Index parameters = 0;
  Index tokens = 0;  // trained, with the cool-downs of all budgets
  double flops = 0;
  double first_end = 0,
         last_end = 0;  // FLOPs of a model at the end of the smallest and of the largest budget
};

class StudyCosts {
 public:
  // Resolves the configuration of every arm at every size; throws UserError for the first that cannot be trained.
  StudyCosts(const Study& study, const Dataset& data, const Exec& ex);

  const TrialCost& of(const std::string& size, const std::string& arm, Stage stage) const;

 private:
  std::map<std::tuple<std::string, std::string, Stage>, TrialCost> costs_;
};

// FLOPs per second of one worker: the records' median, since a run that was paused or shared its core says little about
// the others; 0 where there are no records.
double recorded_speed(const Records& records);
// From a few steps of the first arm at a size, trained here and now.
double measured_speed(const Study& study, const StudySize& size, const Dataset& data, const Exec& ex);

// FLOPs that are left: of the trials that are certainly needed, and of the most there can be.
struct Left {
  double least = 0, most = 0;
};
Left flops_left(const Study& study, const Records& records, const StudyCosts& costs);

}  // namespace ddl
