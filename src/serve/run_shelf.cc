#include "serve/run_shelf.h"

#include <chrono>
#include <cmath>
#include <filesystem>
#include <set>
#include <utility>

#include "core/clock.h"
#include "core/error.h"
#include "report/run_records.h"
#include "serve/shelf_name.h"

namespace ddl {
namespace {

namespace fs = std::filesystem;

constexpr double kLookSeconds = 1;

// Runs below one folder, named by their path from it; a folder that is a run itself by its own name.
void name_runs(const std::string& folder, std::map<std::string, std::string>& named) {
  std::vector<std::string> found;
  try {
    found = find_runs({folder});
  } catch (const UserError&) {
    return;  // none yet
  }
  for (const std::string& run : found) name_below(fs::absolute(folder), fs::absolute(run), run, named);
}

double seconds_since_change(const std::string& path) {
  std::error_code error;
  const auto changed = fs::last_write_time(path, error);
  if (error) return NAN;
  return std::chrono::duration<double>(fs::file_time_type::clock::now() - changed).count();
}

double last_of(const RecordColumns& records, const char* name) {
  const auto column = records.columns.find(name);
  if (column == records.columns.end() || column->second.size() < records.step.size()) return NAN;
  return column->second.back();
}

std::string status_text(const MetricsFile& metrics, Index steps) {
  if (metrics.last_event() == "done") return "done";
  const std::string of = steps > 0 ? fmt::format(" of {}", steps) : "";
  return fmt::format("{} {}{}", metrics.last_event() == "stopped" ? "stopped at step" : "unfinished: step",
                     metrics.last_step(), of);
}

}  // namespace

RunShelf::RunShelf(std::vector<std::string> folders) : folders_(std::move(folders)) {}

void RunShelf::look() {
  if (now() - looked_ < kLookSeconds) return;
  std::map<std::string, std::string> named;
  for (const std::string& folder : folders_) name_runs(folder, named);
  std::erase_if(runs_, [&](const auto& each) {
    const auto found = named.find(each.first);
    return found == named.end() || found->second != each.second.folder;
  });
  for (const auto& [name, folder] : named)
    runs_.try_emplace(name, Shelved{folder, MetricsFile(folder + "/metrics.jsonl")});
  looked_ = now();
}

Json RunShelf::state(const std::string& name, Shelved& run) {
  MetricsFile& metrics = run.metrics;
  metrics.refresh();
  const Json& config = metrics.config();
  const auto option = [&](const char* group, const char* key) -> Json {
    if (!config.is_object() || !config.contains(group) || !config[group].is_object()) return nullptr;
    return config[group].value(key, Json());
  };
  const Json steps = option("train", "steps");
  Json json;
  json["name"] = name;
  json["status"] = status_text(metrics, steps.is_number_integer() ? steps.get<Index>() : 0);
  json["done"] = metrics.last_event() == "done";
  json["step"] = metrics.last_step();
  json["steps"] = steps;
  json["updated_s_ago"] = seconds_since_change(run.folder + "/metrics.jsonl");
  json["residual"] = option("model", "residual");
  json["seed"] = option("train", "seed");
  json["lr"] = option("train", "lr");
  json["tokens"] = last_of(metrics.steps(), "tokens");
  json["loss"] = last_of(metrics.steps(), "loss");
  json["tokens_per_s"] = last_of(metrics.steps(), "tokens_per_s");
  json["validation_loss"] = last_of(metrics.validations(), "loss");
  return json;
}

Json RunShelf::list() {
  const std::lock_guard lock(mutex_);
  look();
  Json list = Json::array();
  for (auto& [name, run] : runs_) list.push_back(state(name, run));
  return Json{{"runs", std::move(list)}};
}

Json RunShelf::run(const std::string& name, Index after, Index points) {
  constexpr Index kGateRecords = 100;
  const std::lock_guard lock(mutex_);
  look();
  const auto found = runs_.find(name);
  if (found == runs_.end()) return nullptr;
  Json json = state(name, found->second);
  const MetricsFile& metrics = found->second.metrics;
  json["restarts"] = metrics.restarts();
  if (after < 0) json["config"] = metrics.config();
  json["training"] = metrics.steps().thinned(after, points);
  json["validation"] = metrics.validations().thinned(after, points);
  json["gates"] = metrics.gates(after, kGateRecords);
  return json;
}

std::vector<std::string> RunShelf::folders(const std::vector<std::string>& names) {
  const std::lock_guard lock(mutex_);
  look();
  std::vector<std::string> folders;
  for (const std::string& name : names) {
    const auto found = runs_.find(name);
    folders.push_back(found == runs_.end() ? "" : found->second.folder);
  }
  return folders;
}

std::vector<std::string> RunShelf::all_folders() {
  const std::lock_guard lock(mutex_);
  look();
  std::vector<std::string> folders;
  for (const auto& [name, run] : runs_) folders.push_back(run.folder);
  return folders;
}

}  // namespace ddl
