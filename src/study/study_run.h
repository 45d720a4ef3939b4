// ./ddl study: workers that take trials from the agenda until every question is answered, and the line that says how
// far they are.
#pragma once

#include <string>

#include "core/exec.h"
#include "study/costs.h"
#include "study/records.h"
#include "study/study_file.h"
#include "train/signals.h"

namespace ddl {

// The folder of a study:
//   study.toml    a copy of the file: another file is another study
//   records/      one JSON file per finished trial; the study's whole knowledge
//   runs/         the trials' runs
//   claims/       who works on what
//   problems.txt  what was set aside or left out
struct StudyFolder {
  std::string path;
  std::string study() const { return path + "/study.toml"; }
  std::string records() const { return path + "/records"; }
  std::string runs() const { return path + "/runs"; }
  std::string claims() const { return path + "/claims"; }
  std::string audits() const { return path + "/audits"; }  // of its trained models, by ddl audit --out
  std::string problems() const { return path + "/problems.txt"; }
};

// Throws UserError where the folder holds another study.
void check_study_folder(const StudyFolder& folder, const Study& study);
// Makes the folder this study's, or sees that it is. Throws UserError where it holds another one.
void open_study_folder(const StudyFolder& folder, const Study& study);

// "runs/studies/NAME" for configs/studies/NAME.toml.
std::string default_study_folder(const std::string& file);

// Trains one trial after the other until nothing is left or a signal comes; `program` is the version for the records.
// Returns the signal, or 0.
int work_on_study(const Study& study, const StudyFolder& folder, const std::string& program,
                  const StopSignals& signals, const Exec& ex);

// Processes of a study on this machine.
struct StudyWorkers {
  int count = 1, threads = 1;  // threads of each
  bool shown = true;           // the live line
};
// Starts workers with `command` (which must come down to work_on_study), restarts those that are killed, and
// shows the live line until they end. Returns the signal that stopped it, or 0. Throws UserError with a
// worker's message where one ends with an error.
int supervise_study(const Study& study, const StudyFolder& folder, const StudyCosts& costs,
                    const std::vector<std::string>& command, const StudyWorkers& workers,
                    const StopSignals& signals);

// The plan in one screen: what is trained, its FLOPs and hours, the questions.
std::string plan_screen(const Study& study, const StudyFolder& folder, const StudyCosts& costs,
                        const Dataset& data, int workers, const Exec& ex);
// Tuned rates and the answers so far.
std::string answers_screen(const Study& study, const Records& records);
Json study_json(const Study& study, const Records& records);

}  // namespace ddl
