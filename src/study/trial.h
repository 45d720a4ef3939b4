// A trial: one arm at one size with one learning rate, starting scale and seed. It is trained as one run, or, in the
// confirmation, as one run per token budget.
#pragma once

#include <string>
#include <vector>

#include "core/exec.h"
#include "data/dataset.h"
#include "study/study_file.h"
#include "train/run_config.h"

namespace ddl {

enum class Stage { kTune, kConfirm };

struct Trial {
  std::string size, arm;
  Stage stage = Stage::kTune;
  double rate = 0, scale = 1;
  Index seed = 0;

  // "XS.ddl-cc.tune.rate-0.016.scale-1.seed-2": the name of its record and of its runs.
  std::string name() const;
};

// That of an arm's models.
std::string residual_rule(const Study& study, const StudySize& size, const std::string& arm);

// The nearest rate with three digits, so that a name tells it exactly.
double rounded_rate(double rate);

// The budgets that this trial trains, in tokens: all of the size, or only the largest.
std::vector<Index> budgets(const Study& study, const Trial& trial);

// The folder of the trial's run of so many tokens, among a study's runs.
std::string run_folder(const std::string& runs, const Trial& trial, Index tokens);

// What --set would say for the trial's run of so many tokens. The order of precedence: study, size, arm, trial.
std::vector<std::string> run_settings(const Study& study, const Trial& trial, Index tokens);

// The configuration of that run. Throws UserError naming the trial where the settings do not fit together.
RunConfig run_config(const Study& study, const Trial& trial, Index tokens, const Dataset& data,
                     const Exec& ex);

}  // namespace ddl
