#include "eval/task.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "core/error.h"
#include "core/options.h"
#include "core/toml.h"
#include "eval/python_text.h"

namespace ddl {
namespace {

constexpr std::size_t kMaxNameBytes = 200;  // of a task and of a file; the system's limit is a little above

struct MetricEntry {
  Metric metric;
  const char* name;
  std::vector<TaskKind> kinds;
};

const std::array<MetricEntry, 3>& metric_table() {
  static const std::array<MetricEntry, 3> table = {{
      {Metric::kAccuracy, "acc", {TaskKind::kChoices, TaskKind::kContexts, TaskKind::kLikelihood}},
      {Metric::kNormalisedAccuracy, "acc_norm", {TaskKind::kChoices}},
      {Metric::kPerplexity, "perplexity", {TaskKind::kLikelihood}},
  }};
  return table;
}

// Keys of a form may stand at the top level of a task that has one form only.
const std::vector<std::string> kFormKeys = {"context", "contexts", "choices", "continuation",
                                            "answer",  "labels",   "clean",   "identity"};
const std::vector<std::string> kTaskKeys = {
    "task",         "version", "training_split",   "validation_split",  "test_split", "files",
    "label_column", "metrics", "target_delimiter", "fewshot_delimiter", "form"};

void refuse_unknown_keys(const Json& table, const std::vector<std::string>& known) {
  for (const auto& [key, value] : table.items())
    if (std::find(known.begin(), known.end(), key) == known.end())
      throw UserError("unknown key '{}'; did you mean '{}'?", key, nearest(key, known));
}

std::string string_at(const Json& table, const char* key, const std::string& fallback = "") {
  if (!table.contains(key)) return fallback;
  if (!table[key].is_string()) throw UserError("{} is {}, expected a string", key, json_kind(table[key]));
  return table[key].get<std::string>();
}

std::vector<std::string> strings_at(const Json& table, const std::string& key) {
  const Json& list = table.at(key);
  std::vector<std::string> strings;
  if (!list.is_array() || list.empty()) throw UserError("{}: expected a list of strings", key);
  for (const Json& entry : list) {
    if (!entry.is_string()) throw UserError("{} holds {}, expected strings", key, json_kind(entry));
    strings.push_back(entry.get<std::string>());
  }
  return strings;
}

Metric parse_metric(const std::string& name, TaskKind kind) {
  std::vector<std::string> names;
  for (const MetricEntry& entry : metric_table()) {
    if (std::find(entry.kinds.begin(), entry.kinds.end(), kind) == entry.kinds.end()) continue;
    if (entry.name == name) return entry.metric;
    names.emplace_back(entry.name);
  }
  throw UserError("metrics: '{}' is not a metric of this kind of task; there are {}", name,
                  fmt::join(names, ", "));
}

Task task_of(const Json& toml) {
  std::vector<std::string> known = kTaskKeys;
  known.insert(known.end(), kFormKeys.begin(), kFormKeys.end());
  refuse_unknown_keys(toml, known);
  Task task;
  task.name = string_at(toml, "task");
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  };
  if (task.name.empty() || task.name == "all" || task.name.size() > kMaxNameBytes ||
      !std::all_of(task.name.begin(), task.name.end(), plain))
    throw UserError(
        "task is '{}', expected a name of letters, digits, _ and - (not \"all\"), at most {} of them",
        task.name.substr(0, kMaxNameBytes), kMaxNameBytes);
  if (toml.contains("version")) {
    if (!toml["version"].is_number())
      throw UserError("version is {}, expected a number", json_kind(toml["version"]));
    task.version = toml["version"].get<double>();
  }
  task.training_split = string_at(toml, "training_split");
  task.validation_split = string_at(toml, "validation_split");
  task.test_split = string_at(toml, "test_split");
  if (task.eval_split().empty())
    throw UserError("expected test_split or validation_split, the split to evaluate");
  task.label_column = string_at(toml, "label_column");
  task.target_delimiter = string_at(toml, "target_delimiter", task.target_delimiter);
  task.fewshot_delimiter = string_at(toml, "fewshot_delimiter", task.fewshot_delimiter);

  for (const std::string& split : {task.training_split, task.validation_split, task.test_split})
    if (split.size() > kMaxNameBytes)
      throw UserError("a split is named '{}', expected a name of at most {} bytes",
                      split.substr(0, kMaxNameBytes), kMaxNameBytes);
    else if (!split.empty())
      task.files[split] = {split};
  if (toml.contains("files")) {
    if (!toml["files"].is_object())
      throw UserError("files is {}, expected a table", json_kind(toml["files"]));
    for (const auto& [split, names] : toml["files"].items()) {
      if (!task.files.contains(split))
        throw UserError("files.{}: the task names no split '{}'", split, split);
      task.files[split] = strings_at(toml["files"], split);
      for (const std::string& name : task.files[split])
        if (name.empty() || name.size() > kMaxNameBytes || name.find('\0') != name.npos)
          throw UserError("files.{} holds '{}', expected names of files of at most {} bytes", split,
                          name.substr(0, kMaxNameBytes), kMaxNameBytes);
    }
  }

  if (!toml.contains("form")) {
    Json form = Json::object();
    for (const std::string& key : kFormKeys)
      if (toml.contains(key)) form[key] = toml[key];
    task.forms.emplace_back(form);
  } else {
    for (const std::string& key : kFormKeys)
      if (toml.contains(key)) throw UserError("{} stands beside [[form]], expected inside", key);
    if (!toml["form"].is_array() || toml["form"].empty()) throw UserError("form: expected [[form]] tables");
    for (const Json& form : toml["form"]) task.forms.emplace_back(form);
  }
  for (const TaskForm& form : task.forms)
    if (form.kind() != task.kind()) throw UserError("the forms are of different kinds");

  if (!toml.contains("metrics")) throw UserError("expected metrics, for example metrics = [\"acc\"]");
  for (const std::string& name : strings_at(toml, "metrics"))
    task.metrics.push_back(parse_metric(name, task.kind()));
  return task;
}

// Every text of a choice must be there before it is cleaned: an empty one has no length to divide by.
void check_choices(const std::vector<std::string>& choices) {
  if (choices.size() < 2) throw UserError("{} choices, expected two or more", choices.size());
  for (std::size_t i = 0; i < choices.size(); ++i)
    if (choices[i].empty()) throw UserError("choice {} is empty", i + 1);
}

}  // namespace

const char* metric_name(Metric metric) {
  for (const MetricEntry& entry : metric_table())
    if (entry.metric == metric) return entry.name;
  return "";
}

TaskForm::TaskForm(const Json& toml) {
  if (!toml.is_object()) throw UserError("form: expected a table");
  refuse_unknown_keys(toml, kFormKeys);
  const auto take = [&](const char* key, std::vector<Template>& into) {
    if (!toml.contains(key)) throw UserError("expected {}", key);
    into.emplace_back(string_at(toml, key));
    columns_.insert(columns_.end(), into.back().columns().begin(), into.back().columns().end());
  };
  const auto take_list = [&](const char* key, std::vector<ListTemplate>& into) {
    try {
      into.emplace_back(toml.at(key));
    } catch (const UserError& error) {
      throw UserError("{}: {}", key, error.what());
    }
    columns_.insert(columns_.end(), into.back().columns().begin(), into.back().columns().end());
  };
  const bool choices = toml.contains("choices"), contexts = toml.contains("contexts");
  if (choices + contexts + (toml.contains("context") && toml.contains("continuation")) != 1 ||
      contexts == toml.contains("context") || choices == toml.contains("continuation"))
    throw UserError(
        "expected context and choices, or contexts and continuation, or context and continuation");
  kind_ = choices ? TaskKind::kChoices : contexts ? TaskKind::kContexts : TaskKind::kLikelihood;
  if (!contexts) take("context", context_);
  if (choices) take_list("choices", list_);
  if (contexts) take_list("contexts", list_);
  if (!choices) take("continuation", continuation_);
  if (kind_ != TaskKind::kLikelihood) {
    take("answer", answer_);
    if (toml.contains("labels")) take_list("labels", labels_);
  } else if (toml.contains("answer") || toml.contains("labels")) {
    throw UserError("answer and labels belong to tasks with choices");
  }
  if (toml.contains("identity")) take("identity", identity_);
  if (toml.contains("clean")) clean_ = find_text_filter(string_at(toml, "clean"));
}

bool TaskForm::fits(const Json& row) const {
  return std::all_of(columns_.begin(), columns_.end(),
                     [&](const std::string& c) { return has_column(row, c); });
}

TaskDocument TaskForm::fill(const Json& row) const {
  TaskDocument document;
  if (kind_ == TaskKind::kContexts)
    document.contexts = list_.front().fill(row);
  else
    document.contexts = {context_.front().fill(row)};
  if (kind_ == TaskKind::kChoices)
    document.choices = list_.front().fill(row);
  else
    document.choices = {continuation_.front().fill(row)};
  if (kind_ == TaskKind::kChoices) check_choices(document.choices);
  if (kind_ == TaskKind::kContexts) check_choices(document.contexts);
  if (document.choices.front().empty()) throw UserError("the continuation is empty");
  if (clean_) {
    for (std::string& text : document.contexts) text = clean_(text);
    for (std::string& text : document.choices) text = clean_(text);
  }
  if (!identity_.empty()) document.identity = identity_.front().fill(row);
  if (kind_ == TaskKind::kLikelihood) return document;

  const Index count = document.choice_count();
  std::vector<std::string> labels;
  if (!labels_.empty())
    labels = labels_.front().fill(row);
  else
    for (Index i = 0; i < count; ++i) labels.push_back(fmt::format("{}", i));
  if (std::ssize(labels) != count) throw UserError("{} choices, but {} labels", count, labels.size());
  const std::string answer(python_strip(answer_.front().fill(row)));
  const auto found = std::find(labels.begin(), labels.end(), answer);
  if (found == labels.end())
    throw UserError("the answer '{}' is none of {}", answer, fmt::join(labels, ", "));
  document.gold = found - labels.begin();
  return document;
}

const std::string& Task::shot_split() const {
  return !training_split.empty() ? training_split : !validation_split.empty() ? validation_split : test_split;
}

Task parse_task(std::string_view toml, const std::string& source_name) {
  const Json table = parse_toml(toml, source_name);
  try {
    return task_of(table);
  } catch (const UserError& error) {
    throw UserError("{}: {}", source_name, error.what());
  }
}

}  // namespace ddl
