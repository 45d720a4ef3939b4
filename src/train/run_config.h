// What a training run is: model, data, optimizer, intervals. One list of options drives the TOML file, --set,
// the printed table and the stored configuration.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "core/exec.h"
#include "core/options.h"
#include "data/loader.h"
#include "model/config.h"
#include "model/optimizer/optimizer.h"

namespace ddl {

class Dataset;

enum class WarmupStart { kFirst, kZero };
constexpr auto names_of(WarmupStart) { return std::array{"first", "zero"}; }
enum class Schedule { kCosine, kConstant, kCooldown };
constexpr auto names_of(Schedule) { return std::array{"cosine", "constant", "cooldown"}; }

struct TrainConfig {
  Index steps = 2000;
  Index batch = 16;      // sequences of a micro-batch
  Index accumulate = 1;  // micro-batches of an update
  Index context = 0;     // tokens of a sequence; 0: model.context
  Index seed = 1;

  double lr = 1e-3;
  double min_lr = 0;  // where cosine and cool-down end
  Index warmup = 100;
  WarmupStart warmup_start = WarmupStart::kFirst;
  Schedule schedule = Schedule::kCosine;
  double cooldown = 0.2;  // the last part of the steps, over which Schedule::kCooldown falls
  Index patience = 0;     // validations without a new best before the run ends; 0: off
  OptimizerConfig optimizer;
  bool zero = false;  // the optimizer's state is shared out among ranks

  std::string data_folder;
  WindowOrder data_order = WindowOrder::kEpoch;

  Index eval_every = 250;
  Index eval_windows = 256;

  Index save_every_steps = 500;    // 0: off
  double save_every_minutes = 15;  // 0: off
  Index keep_last = 2, keep_best = 1;
  bool background = true;

  Index log_every = 1;
  double screen_seconds = 10;
  Index gates_every = 100;  // 0: off
  bool floor = true;
  Index sample_every = 0;  // 0: off
  std::string sample_prompt;
  bool tensorboard = false;

  void describe(Options& options);  // keys "train.*", "data.*", "eval.*", "checkpoint.*", "log.*"
};

struct RunConfig {
  std::string preset = "tiny";
  ModelConfig model;
  TrainConfig train;

  // Members are referred to: the object must outlive the options.
  Options options();
  std::string to_toml() const;
  Json to_json() const;

  Index context() const { return train.context > 0 ? train.context : model.context; }
  Index tokens_per_step() const { return train.batch * train.accumulate * context(); }
};

// Where a run's configuration comes from, in the order of application: defaults, the preset, the stored
// configuration of a run that is resumed, a file, --set.
struct ConfigSources {
  std::string preset;       // "" where not given on the command line
  std::string stored_toml;  // "" for a new run
  std::string file;         // "" where there is none
  std::vector<std::string> sets;
};
// model.vocab is 0 where nothing set it; see resolve_with_data.
RunConfig load_run_config(const ConfigSources& sources);

// Takes the vocabulary from the data where the configuration leaves it open (rounded up to a multiple of 64,
// which makes GPT-2's 50257 the paper's 50304), and checks that the data fits it and everything else fits
// together. Throws UserError.
void resolve_with_data(RunConfig& config, const Dataset& data, const Exec& ex);

// TOML is UTF-8, the name of a folder any bytes. One that is not UTF-8 is stored as "escaped:" and the name with
// a %XX for each such byte; every other name is stored as it is.
std::string escape_path(const std::string& path);
std::string unescape_path(const std::string& text);  // throws UserError

// The configuration in one screen: groups of "key value" in columns.
std::string config_screen(const RunConfig& config);

}  // namespace ddl
