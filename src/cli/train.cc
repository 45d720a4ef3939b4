// ./ddl train: train a model on a dataset, or continue a run.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "cli/build_info.h"
#include "cli/commands.h"
#include "cli/engine_options.h"
#include "cli/ranks.h"
#include "core/error.h"
#include "core/exec.h"
#include "core/json.h"
#include "core/record.h"
#include "data/progress_line.h"
#include "infer/generation.h"
#include "model/engine.h"
#include "serve/server.h"
#include "train/config_page.h"
#include "train/find_lr.h"
#include "train/run.h"
#include "train/run_config.h"

namespace ddl {
namespace {

struct TrainCommand {
  RunRequest request;
  std::string engine, device;
  Index local_ranks = 0;
  bool json = false, list = false, markdown = false, find_lr = false;
  bool watch = false;
  int port = 0;

  void execute() {
    use_engine_options(engine, device);
    if (!engine.empty()) request.sets.push_back("model.engine=" + engine);
    if (markdown && !list) throw UserError("--markdown belongs to --options");
    if (list) return list_options();
    const StopSignals signals;
    if (find_lr && local_ranks > 1) throw UserError("--find-lr runs on one rank: leave --ranks out");
    if (find_lr) return find_rate(signals);
    request.style = Console::style_for(json);
    request.sample = sample;
    const Ranks ranks(local_ranks);
    request.comm = &ranks.comm();
    if (!ranks.comm().alone()) StopSignals::stop_with_ranks(ranks.comm().leads());
    request.version = fmt::format("{} ({})", kBuildInfo.version, kBuildInfo.commit);
    resume_after_restart(ranks.launch());
    std::unique_ptr<Server> page;
    if (watch && ranks.comm().leads()) page = open_page();
    const RunOutcome outcome =
        ranks.reporting_once([&] { return run_training(request, signals, ranks.exec()); });
    if (outcome.signal != 0) throw ExitWithCode(128 + outcome.signal);
  }

 private:
  // A launcher that starts everything again after a failure repeats the command, which began the run the first time.
  void resume_after_restart(const Launch& launch) {
    if (launch.restarts == 0 || !std::filesystem::exists(out_folder(request) + "/config.toml")) return;
    request.resume = true;
    request.from = request.branch = "";
  }

  void list_options() const {
    const std::string text =
        markdown ? config_page()
                 : load_run_config({request.preset, "", request.config_file, request.sets}).options().help();
    std::fputs(text.c_str(), stdout);
  }

  // The run's own page, as long as it trains.
  std::unique_ptr<Server> open_page() const {
    ServeOptions options;
    options.http.port = port;
    options.watch = {out_folder(request)};
    auto page = std::make_unique<Server>(options, Exec{});
    if (json) {
      Json record = make_record("serving");
      record["address"] = page->address();
      std::puts(to_line(record).c_str());
    } else {
      fmt::print("{}/ shows this run while it trains\n", page->address());
    }
    std::fflush(stdout);
    return page;
  }

  // The same choices of chance every time: what differs between two samples is the model.
  static std::string sample(const Weights& weights, const Tokenizer& tokenizer, const std::string& prompt,
                            const Exec& ex) {
    const auto decoder = make_decoder(weights, {}, ex);
    GenerateOptions options;
    options.max_new_tokens = 64;
    options.slide = true;
    return generate(*decoder, tokenizer, prompt, 1, options, {}, ex).front().text;
  }

  void find_rate(const StopSignals& signals) const {
    const FindLrOptions options;
    ProgressLine line("learning rates", ProgressLine::Unit::kSteps, static_cast<std::uint64_t>(options.steps),
                      json ? nullptr : stderr);
    const auto on_step = [&](Index step, const FindLrResult::Point& point) {
      if (!json)
        return line.update(static_cast<std::uint64_t>(step),
                           fmt::format("rate {:.2e}, loss {:.4f}", point.lr, point.loss));
      Json record = make_record("find_lr_step");
      record["step"] = step, record["lr"] = point.lr, record["loss"] = point.loss;
      record["smoothed_loss"] = point.smooth;
      std::puts(to_line(record).c_str());
    };
    const FindLrResult result = find_learning_rate(request, options, on_step, signals, default_exec());
    if (const int signal = signals.received()) throw ExitWithCode(128 + signal);
    std::fputs(json ? (to_line(result.json()) + "\n").c_str() : result.screen().c_str(), stdout);
  }
};

}  // namespace

void add_train_command(Command app) {
  auto c = std::make_shared<TrainCommand>();
  Command train = app.add_command("train", "Train a model on a dataset, or continue a run");
  train.add_option("config", c->request.config_file,
                   "A TOML file (see configs/); without one, small defaults");
  train.add_option("--set", c->request.sets, "key=value, over the file; may be repeated").one_value_each();
  train.add_option("--data", c->request.data, "The dataset's folder (from `ddl data prepare`)");
  train.add_option("--out", c->request.out, "The run's folder (default: runs/NAME of the config)");
  train.add_option("--from", c->request.from,
                   "Start from this model's weights: a run, a checkpoint, or a folder (see `ddl import`)");
  train.add_option("--branch", c->request.branch,
                   "A longer or shorter run that shares this run's steps up to its cool-down");
  train.add_flag("--resume", c->request.resume, "Continue from the run's newest checkpoint");
  train.add_option("--preset", c->request.preset, "Sizes: tiny, mini, small or medium");
  add_engine_options(train, c->engine, c->device);
  add_ranks_option(train, c->local_ranks);
  train.add_flag("--watch", c->watch, "Show the run in a browser while it trains, and print the address");
  train.add_option("--watch-port", c->port, "The port of --watch; 0: any that is free")
      .range(0, 65535)
      .show_default();
  train.add_flag("--json", c->json, "Print every record as a line of JSON");
  train.add_flag("--find-lr", c->find_lr,
                 "Try growing learning rates for 100 steps, suggest one, and write no run");
  train.add_flag("--options", c->list, "List every option with its value here (0: from the data), and end");
  train.add_flag("--markdown", c->markdown, "With --options: the reference page docs/configuration.md");
  train.on_run([c] { c->execute(); });
}

}  // namespace ddl
