// ./ddl train: train a model on a dataset, or continue a run.
#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "core/exec.h"
#include "model/engine.h"
#include "train/config.h"
#include "train/run.h"

namespace ddl {

void add_train_command(Command app) {
  struct Arguments {
    RunRequest request;
    std::string engine;
    bool json = false, list = false;
  };
  auto args = std::make_shared<Arguments>();
  Command train = app.add_command("train", "Train a model on a dataset, or continue a run");
  train.add_option("config", args->request.config_file,
                   "A TOML file (see configs/); without one, small defaults");
  train.add_option("--set", args->request.sets, "key=value, over the file; may be repeated").one_value_each();
  train.add_option("--data", args->request.data, "The dataset's folder (from `ddl data prepare`)");
  train.add_option("--out", args->request.out, "The run's folder (default: runs/NAME of the config)");
  train.add_option("--from", args->request.from,
                   "Start from this model's weights: a run, a checkpoint, or a folder (see `ddl import`)");
  train.add_flag("--resume", args->request.resume, "Continue from the run's newest checkpoint");
  train.add_option("--preset", args->request.preset, "Sizes: tiny, mini, small or medium");
  train.add_option("--engine", args->engine, "What computes: native, or the slow reference")
      .one_of(engine_names());
  train.add_flag("--json", args->json, "Print every record as a line of JSON");
  train.add_flag("--options", args->list,
                 "List every option with its value here (0: from the data), and end");
  train.on_run([args] {
    if (!args->engine.empty()) args->request.sets.push_back("model.engine=" + args->engine);
    if (args->list) {
      const RunRequest& r = args->request;
      std::fputs(load_run_config({r.preset, "", r.config_file, r.sets}).options().help().c_str(), stdout);
      return;
    }
    args->request.style = Console::style_for(args->json);
    const StopSignals signals;
    const RunOutcome outcome = run_training(args->request, signals, default_exec());
    if (outcome.signal != 0) throw ExitWithCode(128 + outcome.signal);
  });
}

}  // namespace ddl
