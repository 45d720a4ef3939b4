// What a study needs next. A function of the file and the records: whoever asks, on whichever machine, gets the same
// list, and takes the first trial that nobody works on.
#pragma once

#include <vector>

#include "study/records.h"
#include "study/study_file.h"
#include "study/trial.h"

namespace ddl {

// Of one arm at one size.
struct ArmAgenda {
  std::vector<Trial> trials;  // that can begin now
  Index tuning_left = 0;      // trials until the search may be settled; it may want more then
  Index confirm_now = 0;      // confirmations that are certainly needed
  Index confirm_most = 0;     // where no question is answered before its last look
};
ArmAgenda arm_agenda(const Study& study, const Records& records, const StudySize& size,
                     const std::string& arm);

struct Agenda {
  std::vector<Trial> trials;  // can begin now, most urgent first; empty: the study is finished
  Index least_left = 0;       // trials that are certainly needed
  Index most_left = 0;        // where no question is answered before its last look
};
Agenda make_agenda(const Study& study, const Records& records);

}  // namespace ddl
