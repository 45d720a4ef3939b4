// What the tests of the study share: a study from a text, and records from a formula instead of training.
#pragma once

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "io/file.h"
#include "study/agenda.h"
#include "study/records.h"
#include "study/study_file.h"
#include "test_folder.h"

namespace ddl {

// Two arms, one question, looks after 4, 8 and 12 pairs. `more` comes at the end of the top level, before the tables.
inline std::string study_text(const std::string& more = "", const std::string& tables = "") {
  return R"(title = "A test"
data = "data"
settings = ["train.schedule=cooldown", "train.warmup=2", "train.batch=4", "model.context=48"]
rates = [0.004, 0.008, 0.016, 0.032, 0.064]
margin = 0.01
)" + more +
         R"(
[[size]]
name = "XS"
settings = ["model.layers=1", "model.width=16", "model.heads=1"]
tokens = [1920, 3840]
arms = ["ddl-cc", "baseline"]
[[question]]
ask = "Is it better?"
arm = "ddl-cc"
against = "baseline"
primary = true
)" + tables;
}

inline Study make_study(const TestFolder& folder, const std::string& text) {
  write_file_atomic(folder / "study.toml", text);
  return read_study(folder / "study.toml");
}

using LossOf = std::function<double(const Trial&)>;

inline TrialRecord make_trial_record(const Study& study, const Trial& trial, double loss) {
  TrialRecord record;
  record.trial = trial;
  record.study_hash = study.hash;
  record.program = "test", record.data = "data";
  record.diverged = !std::isfinite(loss);
  record.flops_per_token = 100;
  if (!record.diverged)
    for (const Index tokens : budgets(study, trial))
      record.endpoints.push_back({tokens, 100.0 * static_cast<double>(tokens), 1, loss, 0});
  return record;
}

// Does what workers do until nothing is left to do.
inline Records simulate(const Study& study, const LossOf& loss) {
  Records records;
  for (Agenda agenda = make_agenda(study, records); !agenda.trials.empty();
       agenda = make_agenda(study, records))
    records.add(make_trial_record(study, agenda.trials.front(), loss(agenda.trials.front())));
  return records;
}

inline Index count(const Records& records, const std::string& arm, Stage stage) {
  Index found = 0;
  for (const auto& [name, record] : records.all())
    if (record.trial.arm == arm && record.trial.stage == stage) ++found;
  return found;
}

}  // namespace ddl
