// What a study knows: one small JSON file per finished trial. Everything a study says is computed from these; the runs'
// folders may be gone.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "study/study_file.h"
#include "study/trial.h"

namespace ddl {

// A model at the end of a token budget.
struct Endpoint {
  Index tokens = 0;
  double flops = 0, seconds = 0;
  double loss = 0;           // validation, in nats
  double wrong_answers = 0;  // the share of answers that are not exact; only for data with answers

  double metric(StudyMetric which) const { return which == StudyMetric::kLoss ? loss : wrong_answers; }
};

struct TrialRecord {
  Trial trial;
  std::string study_hash, program, data;  // of the file; version and commit; fingerprint of the dataset
  bool diverged = false;                  // its loss stopped being finite: it counts as infinite
  std::vector<Endpoint> endpoints;        // one per budget, ascending; those reached before it diverged
  Index parameters = 0, threads = 0;
  double flops_per_token = 0;
  Index spikes = 0;  // steps whose loss was far above those before
  struct Point {
    Index step = 0, tokens = 0;
    double loss = 0;
  };
  std::vector<Point> training;    // of the longest run, means over a few dozen stretches
  std::vector<Point> validation;  // of the longest run
  std::vector<std::string> settings;

  Json json() const;
  static TrialRecord parse(const Json& json, const std::string& file);  // throws UserError
  // Of the largest budget; infinite where it diverged.
  double result(StudyMetric metric) const;
};

// All records of a folder, by the name of their trial.
class Records {
 public:
  // A folder that does not exist has none. A file that is no record of this study is left out, and `problems` says why.
  static Records read(const std::string& folder, const Study& study,
                      std::vector<std::string>* problems = nullptr);
  // One file. Throws UserError where it is no record of this study.
  static TrialRecord read_one(const std::string& path, const Study& study);
  static std::string path(const std::string& folder, const Trial& trial);
  static void write(const std::string& folder, const TrialRecord& record);

  void add(TrialRecord record) { records_.insert_or_assign(record.trial.name(), std::move(record)); }
  const TrialRecord* find(const Trial& trial) const;
  const std::map<std::string, TrialRecord>& all() const { return records_; }

 private:
  std::map<std::string, TrialRecord> records_;
};

}  // namespace ddl
