// A whole run: configuration, data, folder, loop, checkpoints, stop and resume.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/exec.h"
#include "core/json.h"
#include "data/tokenizer.h"
#include "dist/comm.h"
#include "model/weights.h"
#include "train/console.h"
#include "train/signals.h"

namespace ddl {

struct RunRequest {
  std::string config_file, preset, data, out;  // "" where not given
  std::string from;                            // a model to start from: a run, a checkpoint or a folder
  std::string branch;  // a run to continue in a folder of its own, from before its cool-down
  std::vector<std::string> sets;
  bool resume = false;
  Console::Style style = Console::Style::kPlain;
  std::function<void(const Json& record)> on_record = {};  // hears every record
  // Text that continues a prompt, for log.sample_every: what is above this folder knows how. None: no samples.
  using Sample = std::function<std::string(const Weights& weights, const Tokenizer& tokenizer,
                                           const std::string& prompt, const Exec& ex)>;
  Sample sample = {};
  // Several ranks: each calls run_training with its own. `version` is the program's, which must be the same on all.
  Comm* comm = nullptr;  // null: alone
  std::string version = "";
};

// Where the run will be: `out`, or runs/ and the name of its configuration.
std::string out_folder(const RunRequest& request);

struct RunOutcome {
  std::string folder;
  Index step = 0;
  int signal = 0;  // that stopped it; 0: it reached its end
};

// A run that stopped because its loss or gradient was not finite for kMaxSkippedInARow updates.
struct NotFiniteError : UserError {
  using UserError::UserError;
};
// A run's folder whose files cannot be read any more.
struct DamagedRunError : UserError {
  using UserError::UserError;
};

// After this many updates in a row without a finite loss and gradient the run stops.
inline constexpr Index kMaxSkippedInARow = 5;

// Trains until the configured step, a signal, or an error. Throws UserError; what was saved stays saved.
RunOutcome run_training(const RunRequest& request, const StopSignals& signals, const Exec& ex);

}  // namespace ddl
