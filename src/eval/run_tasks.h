// Runs tasks: rows to questions, questions to requests, scores to results.
#pragma once

#include <cstdio>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/exec.h"
#include "core/function_ref.h"
#include "core/record.h"
#include "data/tokenizer.h"
#include "eval/request.h"
#include "eval/task.h"

namespace ddl {

// Scores requests in any order it likes, and hands out each score as soon as it is known.
using ScoreFunction = std::function<void(std::span<const ScoreRequest>,
                                         FunctionRef<void(Index request, const Score& score)> scored)>;

struct EvalRequest {
  std::vector<Task> tasks;
  std::string data;  // the folder with a folder for each task
  Index shots = 0;
  Index limit = 0;         // the first documents of each task; 0: all
  Index context = 0;       // the model's: no continuation may be longer; 0: not known
  std::string samples;     // a file; "": none
  std::string model_hash;  // of the samples' lines
  bool strict = false;     // what cannot be scored is an error, before anything is
  std::FILE* progress = nullptr;
};

struct MetricResult {
  Metric metric;
  double value = 0;
  std::optional<double> error;
};

struct TaskResult {
  std::string task;
  double version = 0;
  Index shots = 0, documents = 0, documents_in_split = 0;
  std::string
      data_hash;  // of every text scored and its answer: equal for the same questions in any file format
  std::vector<MetricResult> metrics;
  const MetricResult* find(Metric metric) const;
  // As in the paper's tables: acc_norm, or acc where the task has no acc_norm.
  double headline() const;
};

// What could not be scored: a task, or documents of one.
struct LeftOut {
  std::string task;
  Index documents = 0;  // 0: the whole task
  std::string reason;   // of the first of them
};

struct EvalReport {
  std::vector<TaskResult> results;
  std::vector<LeftOut> left_out = {};
};

// The tasks of a list of names ("all": the eight of the paper), each once.
// For an unknown name throws UserError with the nearest known one.
std::vector<Task> find_tasks(const std::vector<std::string>& names, const std::vector<Task>& custom);

// All data is read and made into requests before anything is scored. A task whose data is missing or wrong, and a
// document that does not fit, are left out, and the report says so. Throws UserError naming the task, the file and
// the row where nothing is left to score, and with `strict` on the first of them.
EvalReport run_tasks(const EvalRequest& request, const Tokenizer& tokenizer, const ScoreFunction& score,
                     const Exec& ex);

}  // namespace ddl
