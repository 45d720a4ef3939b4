#include "eval/run_tasks.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/options.h"
#include "data/progress_line.h"
#include "eval/metrics.h"
#include "eval/question.h"
#include "eval/samples.h"
#include "eval/task_rows.h"
#include "io/sha256.h"

namespace ddl {
namespace {

struct PreparedTask {
  const Task* task;
  std::vector<Question> questions;
  Index documents_in_split = 0;
};

PreparedTask prepare(const Task& task, const EvalRequest& request) {
  PreparedTask prepared{&task, {}, 0};
  const std::vector<TaskDocument> split = read_split(task, request.data, task.eval_split());
  prepared.documents_in_split = std::ssize(split);
  std::span<const TaskDocument> documents(split);
  if (request.limit > 0) documents = documents.first(std::min<std::size_t>(request.limit, documents.size()));

  std::vector<TaskDocument> other_split;
  std::span<const TaskDocument> pool(split);
  if (request.shots > 0 && task.shot_split() != task.eval_split())
    pool = other_split = read_split(task, request.data, task.shot_split());
  const auto shown = draw_shots(task, documents, pool, request.shots);
  for (std::size_t i = 0; i < documents.size(); ++i) {
    std::string examples;
    for (const Index example : shown[i])
      examples += example_text(task, pool[static_cast<std::size_t>(example)]);
    prepared.questions.push_back(make_question(task, documents[i], examples));
  }
  return prepared;
}

class TaskRun {
 public:
  TaskRun(const PreparedTask& prepared, const EvalRequest& request, const Tokenizer& tokenizer,
          const ScoreFunction& score, SampleFile* samples)
      : task_(*prepared.task),
        questions_(prepared.questions),
        request_(request),
        tokenizer_(tokenizer),
        score_(score),
        samples_(samples),
        values_(task_.metrics.size(), std::vector<double>(questions_.size())),
        missing_(questions_.size(), 0),
        fits_(questions_.size(), true),
        left_out_{task_.name, 0, ""} {
    for (Index i = 0; i < std::ssize(questions_); ++i) {
      const Question& question = questions_[i];
      if (const auto* earlier = samples_ ? samples_->find(task_.name, i, question) : nullptr) {
        finish(i, *earlier);
        ++scored_before_;
        continue;
      }
      try {
        std::vector<ScoreRequest> requests = encode_question(question, tokenizer_);
        for (const ScoreRequest& r : requests) check_length(r);
        for (ScoreRequest& r : requests) {
          requests_.push_back(std::move(r));
          asked_.push_back({i, missing_[i]++});
        }
      } catch (const UserError& error) {
        if (request_.strict)
          throw UserError("{}: {}: {} (nothing was scored)", task_.name, question.place, error.what());
        if (left_out_.documents++ == 0)
          left_out_.reason = fmt::format("{}: {}", question.place, error.what());
        fits_[static_cast<std::size_t>(i)] = false;
      }
    }
  }

  const LeftOut& left_out() const { return left_out_; }
  Index documents() const { return std::ssize(questions_) - left_out_.documents; }

  // All of a task's requests go to the scorer at once: the more it sees, the more of them share a beginning.
  // A document is finished, and written to the samples, when the last of its scores arrives.
  void run() {
    ProgressLine progress(task_.name, ProgressLine::Unit::kDocuments, static_cast<std::uint64_t>(documents()),
                          request_.progress);
    progress.skip(scored_before_);
    std::vector<std::vector<Score>> scores(questions_.size());
    for (std::size_t i = 0; i < scores.size(); ++i) scores[i].resize(static_cast<std::size_t>(missing_[i]));
    std::uint64_t documents = 0;
    const auto scored = [&](Index request, const Score& score) {
      const auto [document, choice] = asked_[request];
      scores[document][static_cast<std::size_t>(choice)] = score;
      if (--missing_[document] > 0) return;
      finish(document, scores[document]);
      write_sample(document, scores[document]);
      progress.update(++documents);
    };
    try {
      score_(requests_, scored);
    } catch (const UserError& error) {
      throw UserError("{}: {}", task_.name, error.what());
    }
    for (const Index left : missing_) DDL_CHECK(left == 0, "a document lacks {} scores", left);
    requests_ = {};
  }

  TaskResult result(const PreparedTask& prepared, const Exec& ex) const {
    TaskResult result{task_.name, task_.version, request_.shots, documents(), prepared.documents_in_split, "",
                      {}};
    Sha256 sha;
    for (std::size_t i = 0; i < questions_.size(); ++i)
      if (fits_[i]) sha.update(questions_[i].hash());
    result.data_hash = sha.hex();
    for (std::size_t m = 0; m < task_.metrics.size(); ++m) {
      std::vector<double> values;
      for (std::size_t i = 0; i < questions_.size(); ++i)
        if (fits_[i]) values.push_back(values_[m][i]);
      result.metrics.push_back({task_.metrics[m], aggregate(task_.metrics[m], values),
                                standard_error(task_.metrics[m], values, ex)});
    }
    return result;
  }

 private:
  struct Asked {
    Index document, choice;
  };

  void check_length(const ScoreRequest& request) const {
    const Index tokens = std::ssize(request.continuation);
    if (request_.context > 0 && tokens > request_.context)
      throw UserError(
          "a continuation of {} tokens cannot be scored by a model with a context of {}; evaluate a model "
          "with a "
          "longer context",
          tokens, request_.context);
  }

  void write_sample(Index i, const std::vector<Score>& scores) {
    if (!samples_) return;
    std::vector<std::pair<std::string, double>> named;
    for (std::size_t m = 0; m < task_.metrics.size(); ++m)
      named.emplace_back(metric_name(task_.metrics[m]), values_[m][static_cast<std::size_t>(i)]);
    samples_->write(task_.name, i, questions_[static_cast<std::size_t>(i)], scores, named);
  }

  void finish(Index i, const std::vector<Score>& scores) {
    for (std::size_t m = 0; m < task_.metrics.size(); ++m)
      values_[m][static_cast<std::size_t>(i)] =
          question_value(task_.metrics[m], task_.kind(), questions_[static_cast<std::size_t>(i)], scores);
  }

  const Task& task_;
  const std::vector<Question>& questions_;
  const EvalRequest& request_;
  const Tokenizer& tokenizer_;
  const ScoreFunction& score_;
  SampleFile* samples_;
  std::vector<std::vector<double>> values_;  // of each metric and document
  std::vector<ScoreRequest> requests_;
  std::vector<Asked> asked_;    // by each request
  std::vector<Index> missing_;  // scores of each document that have not come
  std::vector<bool> fits_;      // each document; the others are left out
  LeftOut left_out_;
  std::uint64_t scored_before_ = 0;
};

}  // namespace

const MetricResult* TaskResult::find(Metric metric) const {
  const auto found =
      std::find_if(metrics.begin(), metrics.end(), [&](const auto& m) { return m.metric == metric; });
  return found == metrics.end() ? nullptr : &*found;
}

double TaskResult::headline() const {
  const MetricResult* result = find(Metric::kNormalisedAccuracy);
  if (!result) result = find(Metric::kAccuracy);
  return result ? result->value : std::numeric_limits<double>::quiet_NaN();
}

std::vector<Task> find_tasks(const std::vector<std::string>& names, const std::vector<Task>& custom) {
  std::vector<Task> known = custom;
  known.insert(known.end(), builtin_tasks().begin(), builtin_tasks().end());
  std::vector<std::string> known_names = {"all"};
  for (const Task& task : known) known_names.push_back(task.name);
  std::vector<Task> tasks;
  const auto add = [&](const std::string& name) {
    const auto of_name = [&](const Task& t) { return t.name == name; };
    const auto found = std::find_if(known.begin(), known.end(), of_name);
    if (found == known.end())
      throw UserError("--tasks: there is no task '{}'; did you mean '{}'? There are {}", name,
                      nearest(name, known_names), fmt::join(known_names, ", "));
    if (std::none_of(tasks.begin(), tasks.end(), of_name)) tasks.push_back(*found);
  };
  for (const std::string& name : names)
    if (name == "all")
      for (const std::string& of_paper : paper_tasks()) add(of_paper);
    else
      add(name);
  return tasks;
}

EvalReport run_tasks(const EvalRequest& request, const Tokenizer& tokenizer, const ScoreFunction& score,
                     const Exec& ex) {
  EvalReport report;
  std::deque<PreparedTask> prepared;
  SampleFile::Identity identity{request.model_hash, request.shots, {}};
  for (const Task& task : request.tasks) {
    identity.tasks[task.name] = task.version;
    try {
      prepared.push_back(prepare(task, request));
    } catch (const UserError& error) {
      if (request.strict) throw;
      report.left_out.push_back({task.name, 0, error.what()});
    }
  }
  const auto refuse_nothing_left = [&](bool anything) {
    if (anything) return;
    std::vector<std::string> reasons;
    for (const LeftOut& left : report.left_out)
      reasons.push_back(left.documents == 0 ? left.reason : left.task + ": " + left.reason);
    if (reasons.size() == 1) throw UserError("{}", reasons.front());
    throw UserError("none of the tasks can be scored:\n  {}", fmt::join(reasons, "\n  "));
  };
  refuse_nothing_left(!prepared.empty() || request.tasks.empty());
  std::optional<SampleFile> samples;
  if (!request.samples.empty()) samples.emplace(request.samples, std::move(identity));
  // Of all tasks first: what is wrong with the last shows before hours are spent on the others.
  std::deque<TaskRun> runs;
  for (const PreparedTask& task : prepared) {
    TaskRun& run = runs.emplace_back(task, request, tokenizer, score, samples ? &*samples : nullptr);
    if (run.left_out().documents > 0) report.left_out.push_back(run.left_out());
  }
  refuse_nothing_left(request.tasks.empty() || std::any_of(runs.begin(), runs.end(), [](const TaskRun& r) {
                        return r.documents() > 0;
                      }));
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].documents() == 0) continue;
    runs[i].run();
    report.results.push_back(runs[i].result(prepared[i], ex));
  }
  return report;
}

}  // namespace ddl
