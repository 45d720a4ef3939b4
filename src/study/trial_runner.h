// Trains a trial: ordinary runs in ordinary folders, resumable, one per token budget. A larger budget branches off
// the smaller one where that began to cool down, so the steps they share are trained once.
#pragma once

#include <optional>
#include <string>

#include "core/exec.h"
#include "core/function_ref.h"
#include "study/records.h"
#include "study/study_file.h"
#include "train/signals.h"

namespace ddl {

// Renames a file or folder to NAME.damaged-N, which is returned.
std::string set_aside(const std::string& path);

struct TrialRunner {
  const Study& study;
  const Dataset& data;
  std::string runs;     // the folder of runs
  std::string program;  // version and commit, for the record
  const StopSignals& signals;
  Exec ex;

  // None where a signal stopped it; what was trained is saved. A run's folder that is damaged is set aside, and
  // `problem` is told. Throws UserError where the trial cannot be trained at all.
  std::optional<TrialRecord> run(const Trial& trial, FunctionRef<void(const std::string&)> problem) const;
};

}  // namespace ddl
