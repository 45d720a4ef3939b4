// ./ddl train: train a model on a dataset, or go on with a run.
#include <CLI/CLI.hpp>
#include <memory>

#include "cli/commands.h"
#include "core/exec.h"
#include "train/config.h"
#include "train/run.h"

namespace ddl {

void add_train_command(CLI::App& app) {
  struct Arguments {
    RunRequest request;
    bool json = false, list = false;
  };
  auto args = std::make_shared<Arguments>();
  CLI::App* train = app.add_subcommand("train", "Train a model on a dataset, or go on with a run");
  train->add_option("config", args->request.config_file, "A TOML file (see configs/); without one, small defaults");
  train->add_option("--set", args->request.sets, "key=value, over the file; may be repeated")
      ->take_all()
      ->allow_extra_args(false);
  train->add_option("--data", args->request.data, "The dataset's folder (from `ddl data prepare`)");
  train->add_option("--out", args->request.out, "The run's folder (default: runs/NAME of the config)");
  train->add_flag("--resume", args->request.resume, "Go on from the run's newest checkpoint");
  train->add_option("--preset", args->request.preset, "Sizes: tiny, mini, small or medium");
  train->add_flag("--json", args->json, "Print every record as a line of JSON");
  train->add_flag("--options", args->list, "List every option of a configuration with its default, and end");
  train->callback([args] {
    if (args->list) {
      RunConfig config;
      if (!args->request.preset.empty()) config.model = preset(config.preset = args->request.preset);
      std::fputs(config.options().help().c_str(), stdout);
      return;
    }
    args->request.style = Console::style_for(args->json);
    const StopSignals signals;
    const RunOutcome outcome = run_training(args->request, signals, default_exec());
    if (outcome.signal != 0) throw CLI::RuntimeError(128 + outcome.signal);
  });
}

}  // namespace ddl
