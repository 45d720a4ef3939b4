#include "study/records.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include "core/error.h"
#include "core/json_fields.h"
#include "io/file.h"

namespace ddl {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Points as columns: half the bytes of objects, and what a chart wants.
Json columns(const std::vector<TrialRecord::Point>& points) {
  Json step = Json::array(), tokens = Json::array(), loss = Json::array();
  for (const TrialRecord::Point& point : points) {
    step.push_back(point.step), tokens.push_back(point.tokens);
    loss.push_back(std::round(point.loss * 1e6) / 1e6);
  }
  return Json{{"step", step}, {"tokens", tokens}, {"loss", loss}};
}

std::vector<TrialRecord::Point> points(const JsonFields& fields) {
  const Json &step = fields.at("step"), &tokens = fields.at("tokens"), &loss = fields.at("loss");
  const auto is_column = [](const Json& column) {
    return column.is_array() && std::all_of(column.begin(), column.end(), [](const Json& value) {
             return value.is_number() || value.is_null();
           });
  };
  if (!is_column(step) || !is_column(tokens) || !is_column(loss) || step.size() != loss.size() ||
      tokens.size() != loss.size())
    fields.refuse("loss", "columns of numbers, equally long");
  std::vector<TrialRecord::Point> all;
  for (std::size_t i = 0; i < loss.size(); ++i)
    if (step[i].is_number() && tokens[i].is_number())
      all.push_back({step[i].get<Index>(), tokens[i].get<Index>(),
                     loss[i].is_null() ? kInfinity : loss[i].get<double>()});
  return all;
}

}  // namespace

Json TrialRecord::json() const {
  Json json{{"format", "ddl-trial"}, {"version", 1}};
  json["study"] = study_hash;
  json["size"] = trial.size, json["arm"] = trial.arm;
  json["stage"] = trial.stage == Stage::kTune ? "tune" : "confirm";
  json["rate"] = trial.rate, json["scale"] = trial.scale, json["seed"] = trial.seed;
  json["program"] = program, json["data"] = data;
  json["diverged"] = diverged;
  json["parameters"] = parameters, json["flops_per_token"] = flops_per_token, json["threads"] = threads;
  json["spikes"] = spikes;
  json["endpoints"] = Json::array();
  for (const Endpoint& end : endpoints)
    json["endpoints"].push_back(Json{{"tokens", end.tokens},
                                     {"flops", end.flops},
                                     {"seconds", end.seconds},
                                     {"loss", end.loss},
                                     {"wrong_answers", end.wrong_answers}});
  json["training"] = columns(training);
  json["validation"] = columns(validation);
  json["settings"] = settings;
  return json;
}

TrialRecord TrialRecord::parse(const Json& json, const std::string& file) {
  const JsonFields fields(json, file);
  if (fields.text("format") != "ddl-trial") fields.refuse("format", "\"ddl-trial\"");
  TrialRecord record;
  record.study_hash = fields.text("study");
  record.trial.size = fields.text("size"), record.trial.arm = fields.text("arm");
  const std::string stage = fields.text("stage");
  if (stage != "tune" && stage != "confirm") fields.refuse("stage", "\"tune\" or \"confirm\"");
  record.trial.stage = stage == "tune" ? Stage::kTune : Stage::kConfirm;
  record.trial.rate = fields.number("rate"), record.trial.scale = fields.number("scale");
  record.trial.seed = fields.whole("seed");
  record.program = fields.text("program"), record.data = fields.text("data");
  if (!fields.at("diverged").is_boolean()) fields.refuse("diverged", "true or false");
  record.diverged = fields.at("diverged");
  record.parameters = fields.whole("parameters"), record.threads = fields.whole("threads");
  record.flops_per_token = fields.number("flops_per_token");
  record.spikes = fields.whole("spikes");
  for (const JsonFields& end : fields.objects("endpoints"))
    record.endpoints.push_back({end.whole("tokens"), end.number("flops"), end.number("seconds"),
                                end.number("loss"), end.number("wrong_answers")});
  if (record.endpoints.empty() && !record.diverged)
    fields.refuse("endpoints", "at least one, or \"diverged\": true");
  record.training = points(fields.object("training"));
  record.validation = points(fields.object("validation"));
  const Json& settings = fields.at("settings");
  if (!settings.is_array() ||
      !std::all_of(settings.begin(), settings.end(), [](const Json& s) { return s.is_string(); }))
    fields.refuse("settings", "a list of texts");
  record.settings = settings.get<std::vector<std::string>>();
  return record;
}

double TrialRecord::result(StudyMetric metric) const {
  return diverged || endpoints.empty() ? kInfinity : endpoints.back().metric(metric);
}

TrialRecord Records::read_one(const std::string& path, const Study& study) {
  const Json json = parse_json(read_file(path));
  if (!json.is_object()) throw UserError("{}: no JSON object", path);
  TrialRecord record = TrialRecord::parse(json, path);
  if (record.study_hash != study.hash)
    throw UserError("{}: a record of another study (hash {})", path, record.study_hash.substr(0, 12));
  const std::vector<Index> tokens = budgets(study, record.trial);
  const bool fits = record.diverged ? record.endpoints.size() < tokens.size() + 1
                                    : record.endpoints.size() == tokens.size();
  if (!fits) throw UserError("{}: {} budgets, expected {}", path, record.endpoints.size(), tokens.size());
  for (const Endpoint& end : record.endpoints)
    if (!(end.tokens > 0 && end.flops > 0 && end.seconds >= 0))
      throw UserError("{}: a budget of {} tokens and {} FLOPs", path, end.tokens, end.flops);
  if (std::filesystem::path(path).stem() != record.trial.name())
    throw UserError("{}: the record of another trial, {}", path, record.trial.name());
  return record;
}

std::string Records::path(const std::string& folder, const Trial& trial) {
  return fmt::format("{}/{}.json", folder, trial.name());
}

Records Records::read(const std::string& folder, const Study& study, std::vector<std::string>* problems) {
  namespace fs = std::filesystem;
  Records records;
  const auto left_out = [&](const std::string& why) {
    if (problems) problems->push_back(why);
  };
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() != ".json") continue;
    const std::string path = entry.path().string();
    try {
      records.add(read_one(path, study));
    } catch (const UserError& problem) {
      left_out(problem.what());
    }
  }
  return records;
}

void Records::write(const std::string& folder, const TrialRecord& record) {
  make_folders(folder);
  write_file_atomic(path(folder, record.trial), to_line(record.json()) + "\n");
}

const TrialRecord* Records::find(const Trial& trial) const {
  const auto found = records_.find(trial.name());
  return found == records_.end() ? nullptr : &found->second;
}

}  // namespace ddl
