#include "study/trial.h"

#include <algorithm>
#include <cstdlib>

#include "core/error.h"

namespace ddl {
namespace {

constexpr Index kValidations = 8;  // of a run: enough for a curve, a few percent of its time

Index steps_of(const RunConfig& config, Index tokens) {
  return std::max<Index>(1, (tokens + config.tokens_per_step() / 2) / config.tokens_per_step());
}

std::vector<std::string> fixed_settings(const Study& study, const Trial& trial) {
  std::vector<std::string> sets = {"log.floor=false",          "log.gates_every=0",
                                   "checkpoint.keep_last=1",   "checkpoint.keep_best=0",
                                   "checkpoint.every_steps=0", "checkpoint.every_minutes=3"};
  const auto add = [&](const std::vector<std::string>& more) {
    sets.insert(sets.end(), more.begin(), more.end());
  };
  add(study.settings);
  add(study.size(trial.size).settings);
  add(study.arm(trial.arm).settings);
  sets.push_back(fmt::format("train.lr={}", trial.rate));
  sets.push_back(fmt::format("model.output_std_factor={}", trial.scale));
  sets.push_back(fmt::format("train.seed={}", trial.seed));
  return sets;
}

}  // namespace

std::string Trial::name() const {
  return fmt::format("{}.{}.{}.rate-{:g}.scale-{:g}.seed-{}", size, arm,
                     stage == Stage::kTune ? "tune" : "confirm", rate, scale, seed);
}

std::string residual_rule(const Study& study, const StudySize& size, const std::string& arm) {
  const auto sets = fixed_settings(study, {.size = size.name, .arm = arm, .rate = 0.001});
  return load_run_config({.preset = "", .stored_toml = "", .file = "", .sets = sets}).model.residual();
}

double rounded_rate(double rate) { return std::strtod(fmt::format("{:.3g}", rate).c_str(), nullptr); }

std::vector<Index> budgets(const Study& study, const Trial& trial) {
  const std::vector<Index>& all = study.size(trial.size).tokens;
  return trial.stage == Stage::kConfirm ? all : std::vector<Index>{all.back()};
}

std::string run_folder(const std::string& runs, const Trial& trial, Index tokens) {
  return fmt::format("{}/{}.tokens-{}", runs, trial.name(), tokens);
}

std::vector<std::string> run_settings(const Study& study, const Trial& trial, Index tokens) {
  std::vector<std::string> sets = fixed_settings(study, trial);
  const RunConfig config = load_run_config({.preset = "", .stored_toml = "", .file = "", .sets = sets});
  const Index steps = steps_of(config, tokens);
  sets.push_back(fmt::format("train.steps={}", steps));
  sets.push_back(fmt::format("eval.every={}", std::max<Index>(1, steps / kValidations)));
  return sets;
}

RunConfig run_config(const Study& study, const Trial& trial, Index tokens, const Dataset& data,
                     const Exec& ex) {
  try {
    RunConfig config = load_run_config(
        {.preset = "", .stored_toml = "", .file = "", .sets = run_settings(study, trial, tokens)});
    config.train.data_folder = data.folder();
    resolve_with_data(config, data, ex);
    return config;
  } catch (const UserError& error) {
    throw UserError("{}: {} at size {}: {}", study.path, trial.arm, trial.size, error.what());
  }
}

}  // namespace ddl
