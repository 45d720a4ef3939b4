#include "report/run_groups.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/shell_word.h"

namespace ddl {
namespace {

// Key and value of every option that may change what is learned, in the order of the configuration.
using Settings = std::vector<std::pair<std::string, std::string>>;

std::string unquoted(const std::string& toml) {
  const bool quoted =
      toml.size() >= 2 && toml.front() == toml.back() && (toml.front() == '"' || toml.front() == '\'');
  return quoted ? toml.substr(1, toml.size() - 2) : toml;
}

// What --set takes for a value in TOML: a string bare, unless that would be read as a quoted one.
std::string set_value(const std::string& toml) {
  if (!toml.starts_with('\'')) return toml;
  const std::string text = unquoted(toml);
  return text.starts_with('"') ? to_line(Json(text)) : text;
}

bool tells_apart(const std::string& key) {
  return key != "train.seed" && key != "data.folder" && !key.starts_with("log.") &&
         !key.starts_with("checkpoint.");
}

// By what it holds, wherever it lies.
std::string data_of(const RunRecords& run) {
  if (run.identity.is_object() && run.identity.contains("data") && run.identity["data"].is_object()) {
    const Json& data = run.identity["data"];
    if (data.contains("fingerprint") && data["fingerprint"].is_string())
      return data["fingerprint"].get<std::string>().substr(0, 16);
  }
  return run.config ? run.config->train.data_folder : "";
}

Settings settings_of(const RunRecords& run) {
  if (!run.config) return {{"run", run.path}};
  RunConfig config = *run.config;
  Settings settings;
  const Options options = config.options();
  for (const Options::Option& option : options.list())
    if (tells_apart(option.key())) settings.emplace_back(option.key(), unquoted(option.value()));
  settings.emplace_back("data", data_of(run));
  return settings;
}

std::string value_of(const Settings& settings, const std::string& key) {
  for (const auto& [name, value] : settings)
    if (name == key) return value;
  return "";
}

std::string joined(const Settings& settings, const std::string& without = "") {
  std::string text;
  for (const auto& [key, value] : settings)
    if (key != without) text += fmt::format("{}={}\n", key, value);
  return text;
}

std::vector<RunGroups::Difference> differences_of(const std::vector<Settings>& all) {
  std::vector<std::string> keys;
  for (const Settings& settings : all)
    for (const auto& [key, value] : settings)
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
  std::vector<RunGroups::Difference> differences;
  for (const std::string& key : keys) {
    RunGroups::Difference difference{key, {}};
    for (const Settings& settings : all) difference.values.push_back(value_of(settings, key));
    const auto& values = difference.values;
    if (std::any_of(values.begin(), values.end(), [&](const auto& v) { return v != values[0]; }))
      differences.push_back(std::move(difference));
  }
  return differences;
}

// The rule, and what else tells groups with the same rule apart, as long as that is short.
void name_groups(RunGroups& result) {
  constexpr std::size_t kMostInAName = 3;
  std::vector<const RunGroups::Difference*> telling;
  for (const RunGroups::Difference& difference : result.differences) {
    if (difference.key == "model.residual") continue;
    std::map<std::string, std::set<std::string>> by_rule;
    for (std::size_t g = 0; g < result.groups.size(); ++g)
      by_rule[result.groups[g].rule].insert(difference.values[g]);
    if (std::any_of(by_rule.begin(), by_rule.end(), [](const auto& rule) { return rule.second.size() > 1; }))
      telling.push_back(&difference);
  }
  std::map<std::string, int> uses;
  for (std::size_t g = 0; g < result.groups.size(); ++g) {
    RunGroup& group = result.groups[g];
    group.name = group.rule;
    if (telling.size() <= kMostInAName)
      for (const auto* difference : telling)
        if (!difference->values[g].empty())
          group.name += fmt::format(", {} {}", difference->key.substr(difference->key.rfind('.') + 1),
                                    difference->values[g]);
    if (group.rule.empty()) group.name = group.runs[0]->name;
    ++uses[group.name];
  }
  for (RunGroup& group : result.groups)
    if (uses[group.name] > 1) group.name += fmt::format(" ({})", group.runs[0]->name);
}

}  // namespace

RunGroups group_runs(const std::vector<RunRecords>& runs) {
  RunGroups result;
  std::map<std::string, std::size_t> place;
  std::vector<Settings> all;
  for (const RunRecords& run : runs) {
    Settings settings = settings_of(run);
    const auto [at, is_new] = place.emplace(joined(settings), result.groups.size());
    if (is_new) {
      result.groups.push_back({"",
                               run.config ? run.config->model.residual() : "",
                               run.config ? run.config->train.lr : NAN,
                               joined(settings, "train.lr"),
                               {}});
      all.push_back(std::move(settings));
    }
    result.groups[at->second].runs.push_back(&run);
  }
  result.differences = differences_of(all);
  name_groups(result);
  return result;
}

std::string train_command(const RunRecords& run) {
  if (!run.config || run.rate_by_clock) return "";
  RunConfig config = *run.config;
  const bool from_a_model = run.identity.is_object() && run.identity.contains("started_from") &&
                            run.identity["started_from"].is_string();
  std::vector<std::string> words;
  if (run.start.is_object() && run.start.contains("threads") && run.start["threads"].is_number_integer())
    words.push_back(fmt::format("DDL_THREADS={}", run.start["threads"].get<Index>()));
  words.push_back("./ddl train");
  if (from_a_model)
    words.push_back("--from " + shell_word(run.identity["started_from"].get<std::string>()));
  else
    words.push_back("--preset " + config.preset);
  words.push_back("--data " + shell_word(config.train.data_folder));
  words.push_back("--out " + shell_word("runs/" + run.name));
  // What differs from the defaults of the same preset, rule and optimizer.
  RunConfig defaults = load_run_config(
      {config.preset,
       "",
       "",
       {"model.residual=" + config.model.residual(), "train.optimizer=" + config.train.optimizer.name}});
  const Options usual = defaults.options(), own = config.options();
  std::vector<std::string> sets = {"model.residual=" + config.model.residual(),
                                   "train.optimizer=" + config.train.optimizer.name};
  for (const OptionChange& change : option_changes(usual, own))
    if (change.key != "data.folder") sets.push_back(change.key + "=" + set_value(change.after));
  for (const std::string& set : sets)
    if (!from_a_model || !set.starts_with("model.")) words.push_back("--set " + shell_word(set));
  // Lines of a width that fits a page.
  constexpr std::size_t kWidth = 100;
  std::string text, line;
  for (const std::string& word : words) {
    if (!line.empty() && line.size() + word.size() > kWidth) {
      text += line + " \\\n";
      line = "   ";
    }
    line += (line.empty() ? "" : " ") + word;
  }
  return text + line;
}

}  // namespace ddl
