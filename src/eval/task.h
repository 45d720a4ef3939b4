// What a task is: where its rows are, how a row becomes a question, what is counted. A task is a TOML text;
// the built-in ones are in builtin_tasks.cc, a user's in a file (docs/evaluation.md). The names of the keys
// and the rules behind them are those of lm-evaluation-harness.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/index.h"
#include "core/json.h"
#include "eval/template.h"

namespace ddl {

// What is compared: the likelihoods of several choices after one context; of one continuation after several
// contexts; or one continuation is scored by itself.
enum class TaskKind { kChoices, kContexts, kLikelihood };

enum class Metric { kAccuracy, kNormalisedAccuracy, kPerplexity };
const char* metric_name(Metric metric);  // "acc", "acc_norm", "perplexity"

// A row with its templates filled in.
struct TaskDocument {
  std::vector<std::string> contexts;  // one per choice (kContexts), else one
  std::vector<std::string> choices;   // one per choice (kChoices), else one: the continuation
  Index gold = 0;                     // the right choice
  std::string identity = {};          // what else tells it from others
  std::string place = {};             // "FILE: row N"; the same document may stand in several
  bool operator==(const TaskDocument& other) const {
    return contexts == other.contexts && choices == other.choices && gold == other.gold &&
           identity == other.identity;
  }
  Index choice_count() const { return std::max(std::ssize(contexts), std::ssize(choices)); }
};

// How rows with certain columns become documents. A task has one form for each layout its data comes in.
class TaskForm {
 public:
  explicit TaskForm(const Json& toml);
  TaskKind kind() const { return kind_; }
  bool fits(const Json& row) const;  // has all columns
  const std::vector<std::string>& columns() const { return columns_; }
  // Throws UserError: a wrong type, an empty choice, an unknown answer
  TaskDocument fill(const Json& row) const;

 private:
  TaskKind kind_;
  std::vector<Template> context_;       // one, except in kContexts
  std::vector<ListTemplate> list_;      // the choices, or the contexts
  std::vector<Template> continuation_;  // one, except in kChoices
  std::vector<Template> answer_;        // one, except in kLikelihood
  std::vector<ListTemplate> labels_;    // the answer is one of them; none: 0, 1, 2, ...
  std::vector<Template> identity_;      // one or none
  TextFilter clean_ = nullptr;          // over the filled-in context and choices
  std::vector<std::string> columns_;
};

struct Task {
  std::string name;
  double version = 0;
  std::string training_split, validation_split, test_split;  // "": the task has none
  std::map<std::string, std::vector<std::string>> files;  // of a split: names without ending, tried in order
  std::string label_column;  // where rows lack it, it is read from NAME-labels.lst; "": never
  std::vector<TaskForm> forms;
  std::vector<Metric> metrics;
  std::string target_delimiter = " ", fewshot_delimiter = "\n\n";

  TaskKind kind() const { return forms.front().kind(); }
  const std::string& eval_split() const { return test_split.empty() ? validation_split : test_split; }
  const std::string& shot_split() const;
  // Without a test split one example more is drawn than is shown, and those equal to the document in question
  // are passed over. (The harness compares the names of two splits; both are absent here, hence equal.)
  bool draws_a_spare() const { return test_split.empty(); }
  const std::vector<std::string>& file_names(const std::string& split) const { return files.at(split); }
};

// Throws UserError naming the source and the key.
Task parse_task(std::string_view toml, const std::string& source_name);

const std::vector<Task>& builtin_tasks();
const std::vector<std::string>& paper_tasks();  // the eight of the paper's tables, in their order

}  // namespace ddl
