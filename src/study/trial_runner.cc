#include "study/trial_runner.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <sstream>
#include <vector>

#include "core/error.h"
#include "core/json_fields.h"
#include "io/file.h"
#include "train/run.h"
#include "train/run_folder.h"

namespace ddl {
namespace {

namespace fs = std::filesystem;
constexpr Index kCurvePoints = 60;    // of the training loss in a record
constexpr double kSpikeNats = 1;      // a step this far above the smoothed loss is a spike
constexpr double kLossMemory = 0.95;  // of the smoothing

// What a record keeps of a run's metrics.jsonl.
struct RunSummary {
  std::vector<TrialRecord::Point> steps, validations;
  Endpoint end;
  Index parameters = 0, threads = 0;
  double flops_per_token = 0;
};

RunSummary summarise(const std::string& run) {
  RunSummary summary;
  const std::string path = run + "/metrics.jsonl";
  std::istringstream lines(read_file(path, kMetricsBytes));
  for (std::string line; std::getline(lines, line);) {
    const Json record = parse_json(line);
    if (!record.is_object()) continue;
    const JsonFields fields(record, path);
    const std::string event = fields.text("event");
    const auto point = [&] {
      return TrialRecord::Point{fields.whole("step"), fields.whole("tokens"),
                                fields.at("loss").is_null() ? INFINITY : fields.number("loss")};
    };
    if (event == "start" || event == "resume") {
      summary.parameters = fields.whole("parameters");
      summary.flops_per_token = fields.number("flops_per_token");
      summary.threads = fields.whole("threads");
    } else if (event == "step") {
      summary.steps.push_back(point());
    } else if (event == "validation") {
      summary.validations.push_back(point());
      summary.end.loss = summary.validations.back().loss;
      if (fields.has("exact_answers")) summary.end.wrong_answers = 1 - fields.number("exact_answers");
    } else if (event == "done" && fields.has("tokens")) {
      summary.end.tokens = fields.whole("tokens");
      summary.end.flops = fields.number("flops");
      summary.end.seconds = fields.number("elapsed_s");
    }
  }
  if (summary.validations.empty() || summary.end.tokens == 0)
    throw DamagedRunError("{}: the run is finished, but its records of validation or end are missing", path);
  return summary;
}

std::vector<TrialRecord::Point> thinned(const std::vector<TrialRecord::Point>& steps) {
  std::vector<TrialRecord::Point> few;
  const Index stretch = std::max<Index>(1, (std::ssize(steps) + kCurvePoints - 1) / kCurvePoints);
  for (Index i = 0; i < std::ssize(steps); i += stretch) {
    const Index last = std::min(i + stretch, std::ssize(steps)) - 1;
    double sum = 0;
    for (Index j = i; j <= last; ++j) sum += steps[static_cast<std::size_t>(j)].loss;
    TrialRecord::Point point = steps[static_cast<std::size_t>(last)];
    point.loss = sum / static_cast<double>(last - i + 1);
    few.push_back(point);
  }
  return few;
}

Index count_spikes(const std::vector<TrialRecord::Point>& steps) {
  Index spikes = 0;
  double smooth = steps.empty() ? 0 : steps.front().loss;
  for (const TrialRecord::Point& step : steps) {
    if (!(step.loss < smooth + kSpikeNats)) ++spikes;
    if (std::isfinite(step.loss)) smooth = kLossMemory * smooth + (1 - kLossMemory) * step.loss;
  }
  return spikes;
}

}  // namespace

std::string set_aside(const std::string& path) {
  std::string aside;
  for (int i = 1; aside.empty() || fs::exists(aside); ++i) aside = fmt::format("{}.damaged-{}", path, i);
  rename_path(path, aside);
  return aside;
}

std::optional<TrialRecord> TrialRunner::run(const Trial& trial,
                                            FunctionRef<void(const std::string&)> problem) const {
  TrialRecord record;
  record.trial = trial;
  record.study_hash = study.hash;
  record.program = program;
  record.data = data.fingerprint();
  make_folders(runs);
  std::string shorter;  // the run of the budget before
  for (const Index tokens : budgets(study, trial)) {
    const std::string out = run_folder(runs, trial, tokens);
    RunRequest request;
    request.data = data.folder();
    request.out = out;
    request.sets = run_settings(study, trial, tokens);
    request.style = Console::Style::kSilent;
    record.settings = request.sets;
    for (int attempt = 1;; ++attempt) {
      request.resume = fs::exists(out + "/config.toml");
      request.branch = request.resume ? "" : shorter;
      try {
        if (run_training(request, signals, ex).signal != 0) return std::nullopt;
        const RunSummary summary = summarise(out);
        record.parameters = summary.parameters, record.threads = summary.threads;
        record.flops_per_token = summary.flops_per_token;
        record.training = thinned(summary.steps), record.validation = summary.validations;
        record.spikes = count_spikes(summary.steps);
        if (!std::isfinite(summary.end.loss)) {
          record.diverged = true;
          return record;
        }
        record.endpoints.push_back(summary.end);
        break;
      } catch (const NotFiniteError&) {
        record.diverged = true;
        return record;
      } catch (const DamagedRunError& error) {
        if (attempt > 2) throw;
        if (request.branch.empty()) {
          problem(fmt::format("{}: damaged, set aside as {}, and repeated: {}", out, set_aside(out),
                              error.what()));
        } else {  // the same bits, only later
          problem(fmt::format("{}: trained from step 0, since it cannot branch: {}", out, error.what()));
          shorter.clear();
        }
      }
    }
    shorter = out;
  }
  return record;
}

}  // namespace ddl
