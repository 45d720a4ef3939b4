// A run's metrics.jsonl as it grows: what is new is read, what is known is kept. Numbers lie in columns, so that a
// run of many steps takes little memory and can be thinned quickly.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/index.h"
#include "core/json.h"

namespace ddl {

// The records of one event, in order of their steps: every number that they have, by name. Missing: NaN.
struct RecordColumns {
  std::map<std::string, std::vector<double>> columns;
  std::vector<Index> step;

  void add(Index at, const Json& record);  // replaces those from this step on: the run was resumed before it

  // Those after step `after` (-1: all), in at most `points` bins of neighbours:
  //   {"step": [...], "tokens": [...], ..., "loss": {"mean": [...], "min": [...], "max": [...]}, ...}
  // Where the run stands (step, tokens, flops, elapsed_s, epoch) is what a bin ends with. Bins of one record have no
  // min and max.
  Json thinned(Index after, Index points) const;
};

class MetricsFile {
 public:
  explicit MetricsFile(std::string path) : path_(std::move(path)) {}

  // Reads what has been added. A file that became shorter or another one is read anew.
  void refresh();

  const RecordColumns& steps() const { return steps_; }
  const RecordColumns& validations() const { return validations_; }
  // {"step", "sublayers"} of the gates' records after step `after`, at most `most` spread evenly.
  Json gates(Index after, Index most) const;
  const Json& config() const { return config_; }  // of the newest start; null: none yet
  const std::string& last_event() const { return last_event_; }
  Index last_step() const { return last_step_; }
  // How often what was known turned out to be another file: a reader that sees a new number begins anew.
  Index restarts() const { return restarts_; }

 private:
  void clear();
  void take(const Json& record);

  std::string path_;
  std::uint64_t offset_ = 0, inode_ = 0;
  RecordColumns steps_, validations_;
  std::vector<Json> gates_;
  Json config_;
  std::string last_event_;
  Index last_step_ = 0, restarts_ = 0;
};

}  // namespace ddl
