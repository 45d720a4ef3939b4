#include "report/run_records.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "io/file.h"
#include "train/run_folder.h"

namespace ddl {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxDepth = 6;  // of runs below a folder

double number(const Json& json, const char* key) {
  const auto at = json.find(key);
  return at != json.end() && at->is_number() ? at->get<double>() : NAN;
}

std::string text(const Json& json, const char* key) {
  const auto at = json.find(key);
  return at != json.end() && at->is_string() ? at->get<std::string>() : "";
}

// A record again for a step that was there already: the run was resumed from before it, and this one counts.
template <class Record>
void drop_from(std::vector<Record>& records, Index step) {
  while (!records.empty() && records.back().step >= step) records.pop_back();
}

// The mean of the series called "gate"; a rule with several gates has none of that name.
double mean_gate(const Json& sublayer) {
  const auto series = sublayer.find("series");
  if (series == sublayer.end() || !series->is_object() || !series->contains("gate")) return NAN;
  const Json& gate = (*series)["gate"];
  return gate.is_object() ? number(gate, "mean") : NAN;
}

std::vector<GateRecord::Sublayer> read_sublayers(const Json& record) {
  std::vector<GateRecord::Sublayer> sublayers;
  const auto list = record.find("sublayers");
  if (list == record.end() || !list->is_array()) return {};
  for (const Json& each : *list) {
    if (!each.is_object()) return {};
    const double index = number(each, "sublayer");
    sublayers.push_back(
        {fmt::format("{} {}", std::isfinite(index) ? static_cast<Index>(index) : -1, text(each, "kind")),
         mean_gate(each), number(each, "discrepancy_before"), number(each, "discrepancy_after")});
  }
  return sublayers;
}

class Reader {
 public:
  explicit Reader(const std::string& path) { run_.path = path; }

  RunRecords read() {
    attempt("config.toml", [&] {
      const std::string file = run_.path + "/config.toml";
      run_.config = load_run_config({"", read_file(file), "", {}});
    });
    attempt("run.json", [&] {
      std::string error;
      run_.identity = parse_json(read_file(run_.path + "/run.json"), &error);
      if (!run_.identity.is_object()) throw UserError("run.json: is damaged ({})", error);
    });
    if (!run_.identity.is_object()) run_.identity = nullptr;
    if (fs::exists(run_.path + "/metrics.jsonl"))
      attempt("metrics.jsonl", [&] { read_metrics(read_file(run_.path + "/metrics.jsonl", kMetricsBytes)); });
    if (!run_.has_records()) run_.notes.push_back("there are no records yet");
    finish_status();
    return std::move(run_);
  }

 private:
  template <class Body>
  void attempt(const std::string& file, Body&& body) {
    try {
      body();
    } catch (const UserError& error) {
      run_.notes.push_back(fmt::format("{} cannot be used: {}", file, error.what()));
    }
  }

  void read_metrics(const std::string& metrics) {
    Index line_number = 0, bad = 0, first_bad = 0;
    for (std::size_t from = 0; from < metrics.size();) {
      const std::size_t end = metrics.find('\n', from);
      ++line_number;
      if (end == std::string::npos) {
        run_.notes.push_back(
            "the last line of metrics.jsonl is incomplete and left out; the run may be under way");
        break;
      }
      const std::string_view line = std::string_view(metrics).substr(from, end - from);
      from = end + 1;
      if (line.empty()) continue;
      const Json record = parse_json(line);
      if (record.is_object() && take(record)) continue;
      if (bad++ == 0) first_bad = line_number;
    }
    if (bad > 0)
      run_.notes.push_back(
          fmt::format("{} of {} lines of metrics.jsonl cannot be read and are left out; the first is line {}",
                      bad, line_number, first_bad));
  }

  // False: not a record.
  bool take(const Json& record) {
    const std::string event = text(record, "event");
    const double at = number(record, "step");
    if (event.empty() || !std::isfinite(at) || at < 0 || at > 1e15) return false;
    const auto step = static_cast<Index>(at);
    const double tokens = number(record, "tokens"), flops = number(record, "flops"),
                 seconds = number(record, "elapsed_s");
    const bool placed = std::isfinite(tokens) && std::isfinite(flops) && std::isfinite(seconds);
    last_event_ = event, last_step_ = step;
    if (event == "start" || event == "resume") {
      run_.start = record;
      if (record.contains("rate_by_clock")) run_.rate_by_clock = true;
    } else if (event == "step") {
      if (!placed) return false;
      drop_from(run_.steps, step);
      run_.steps.push_back({step, tokens, flops, seconds, number(record, "loss"), number(record, "grad_norm"),
                            number(record, "lr"), record.contains("skipped")});
    } else if (event == "validation") {
      if (!placed) return false;
      drop_from(run_.validations, step);
      run_.validations.push_back(
          {step, tokens, flops, seconds, number(record, "loss"), number(record, "exact_answers")});
    } else if (event == "gates") {
      drop_from(run_.gates, step);
      if (auto sublayers = read_sublayers(record); !sublayers.empty())
        run_.gates.push_back({step, std::move(sublayers)});
    }
    return true;
  }

  void finish_status() {
    run_.done = last_event_ == "done";
    const std::string of = run_.config ? fmt::format(" of {}", run_.config->train.steps) : "";
    if (run_.done)
      run_.status = "done";
    else if (last_event_ == "stopped")
      run_.status = fmt::format("stopped at step {}{}", last_step_, of);
    else
      run_.status = fmt::format("unfinished: step {}{}", last_step_, of);
    if (!run_.done && run_.has_records()) run_.notes.push_back(run_.status);
    const auto skipped =
        std::count_if(run_.steps.begin(), run_.steps.end(), [](const auto& s) { return s.skipped; });
    if (skipped > 0)
      run_.notes.push_back(
          fmt::format("{} of {} recorded updates had a loss or gradient that is not finite and were skipped",
                      skipped, run_.steps.size()));
  }

  RunRecords run_;
  std::string last_event_;
  Index last_step_ = 0;
};

void find_below(const fs::path& folder, int depth, std::vector<std::string>& found) {
  if (is_run_folder(folder.string())) {
    found.push_back(folder.string());
    return;
  }
  if (depth == 0) return;
  std::vector<fs::path> inner;
  std::error_code error;
  for (const auto& entry :
       fs::directory_iterator(folder, fs::directory_options::skip_permission_denied, error))
    if (entry.is_directory(error) && !entry.is_symlink(error)) inner.push_back(entry.path());
  std::sort(inner.begin(), inner.end());
  for (const fs::path& each : inner) find_below(each, depth - 1, found);
}

// Without "./" in front and "/" at the end: a page does not depend on how a run's folder was written.
std::string tidy(const std::string& path) {
  const fs::path normal = fs::path(path).lexically_normal();
  return (normal.has_filename() || !normal.has_parent_path() ? normal : normal.parent_path()).string();
}

// The last `parts` parts of a path.
std::string path_end(const std::string& path, int parts) {
  fs::path rest = fs::absolute(path).lexically_normal(), end;
  if (!rest.has_filename()) rest = rest.parent_path();
  for (int i = 0; i < parts && rest.has_filename(); ++i, rest = rest.parent_path())
    end = end.empty() ? rest.filename() : rest.filename() / end;
  return end.string();
}

}  // namespace

bool is_run_folder(const std::string& path) {
  // A checkpoint inside a run has config.json instead.
  return fs::is_regular_file(path + "/config.toml") || fs::is_regular_file(path + "/metrics.jsonl");
}

std::vector<std::string> find_runs(const std::vector<std::string>& paths) {
  std::vector<std::string> found;
  std::set<std::string> seen;
  for (const std::string& path : paths) {
    if (!fs::exists(path)) throw UserError("{}: there is no such folder", path);
    if (!fs::is_directory(path)) throw UserError("{}: expected a run's folder, found a file", path);
    std::vector<std::string> here;
    find_below(path, kMaxDepth, here);
    if (here.empty())
      throw UserError(
          "{}: is no run and holds none; a run is a folder that `ddl train` made, with config.toml and "
          "metrics.jsonl",
          path);
    for (const std::string& run : here)
      if (seen.insert(fs::weakly_canonical(run).string()).second) found.push_back(tidy(run));
  }
  return found;
}

RunRecords read_run_records(const std::string& path) { return Reader(path).read(); }

std::vector<RunRecords> read_all_runs(const std::vector<std::string>& paths) {
  std::vector<RunRecords> runs;
  for (const std::string& path : paths) runs.push_back(read_run_records(path));
  for (int parts = 1; parts <= kMaxDepth + 1; ++parts) {
    std::set<std::string> names;
    for (RunRecords& run : runs) names.insert(run.name = path_end(run.path, parts));
    if (names.size() == runs.size()) return runs;
  }
  for (RunRecords& run : runs) run.name = run.path;
  return runs;
}

}  // namespace ddl
