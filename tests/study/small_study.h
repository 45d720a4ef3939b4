// A study with real runs that are as short as they can be.
#pragma once

#include <string>

#include "small_run.h"
#include "study/study_run.h"
#include "study_testing.h"

namespace ddl {

// One tuning seed, two looks: about twenty runs of a tenth of a second.
inline std::string small_study(const std::string& data) {
  std::string text =
      study_text("tuning_seeds = [1]\n", "[[look]]\npairs = 2\np = 0.0001\n[[look]]\npairs = 3\np = 0.04\n");
  text.replace(text.find("data = \"data\""), 13, "data = \"" + data + "\"");
  text.replace(text.find("[0.004, 0.008, 0.016, 0.032, 0.064]"), 35, "[0.004, 0.016, 0.064]");
  return text;
}

struct SmallStudy {
  TestFolder folder;
  Study study = make_study(folder, small_study(make_data(folder)));
  StudyFolder out{folder / "out"};
  StopSignals signals;
  int work() { return work_on_study(study, out, "test 1", signals, kOneThread); }
};

}  // namespace ddl
