// What a run's folder says, as far as it can be read: a run may be unfinished, cut short or partly damaged. What is
// wrong with it becomes a note, not an error.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "train/run_config.h"

namespace ddl {

struct StepRecord {
  Index step = 0;
  double tokens = 0, flops = 0, seconds = 0;
  double loss = 0, grad_norm = 0, lr = 0;  // NaN where the record has none
  bool skipped = false;                    // loss or gradient was not finite
};

struct ValidationRecord {
  Index step = 0;
  double tokens = 0, flops = 0, seconds = 0;
  double loss = 0, exact_answers = 0;  // NaN where the record has none
};

struct GateRecord {
  struct Sublayer {
    std::string name;  // "0 attention"
    double mean_gate = 0, discrepancy_before = 0, discrepancy_after = 0;
  };
  Index step = 0;
  std::vector<Sublayer> sublayers;
};

struct RunRecords {
  std::string path;
  std::string name;                 // short, distinct among the runs of a report
  std::optional<RunConfig> config;  // none: damaged
  Json identity;                    // run.json; null: damaged
  Json start;                       // the newest record of a start or resume; null: none
  std::vector<StepRecord> steps;
  std::vector<ValidationRecord> validations;
  std::vector<GateRecord> gates;
  std::string status;  // "done", "stopped at step 20", "unfinished: step 20 of 100"
  bool done = false;
  bool rate_by_clock = false;      // ./ddl demo made it: no command of `ddl train` repeats it
  std::vector<std::string> notes;  // what is wrong with it

  bool has_records() const { return !steps.empty() || !validations.empty(); }
  Index seed() const { return config ? config->train.seed : 0; }
};

// A folder that `ddl train` made, whole or not.
bool is_run_folder(const std::string& path);

// The runs among and below `paths`, in the order of the paths and by name below each. Throws UserError where a path
// is not there, or neither is a run nor holds one.
std::vector<std::string> find_runs(const std::vector<std::string>& paths);

RunRecords read_run_records(const std::string& path);

// Reads them all and gives each the shortest name that is its own.
std::vector<RunRecords> read_all_runs(const std::vector<std::string>& paths);

}  // namespace ddl
