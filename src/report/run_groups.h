// Runs that differ by nothing but the seed belong together: one line with a band in every chart.
#pragma once

#include <string>
#include <vector>

#include "report/run_records.h"

namespace ddl {

struct RunGroup {
  std::string name;                     // "ddl-cc", "ddl-cc, lr 0.003"
  std::string rule;                     // "" where the configuration is damaged
  double lr = 0;                        // NaN there
  std::string without_lr;               // equal in groups that differ by nothing but the learning rate
  std::vector<const RunRecords*> runs;  // in the order given
};

struct RunGroups {
  std::vector<RunGroup> groups;  // in the order of their first runs
  // Options in which groups differ, with the value of each group; "" where a group has no such option.
  struct Difference {
    std::string key;
    std::vector<std::string> values;
  };
  std::vector<Difference> differences;
};

// Refers to the runs. What says where and how often to write does not tell groups apart.
RunGroups group_runs(const std::vector<RunRecords>& runs);

// The command that repeats a run with nothing but its data; empty where the configuration is damaged.
std::string train_command(const RunRecords& run);

}  // namespace ddl
