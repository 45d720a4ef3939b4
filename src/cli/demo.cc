// ./ddl demo
#include "study/demo.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/commands.h"

namespace ddl {

void add_demo_command(CLI::App& app) {
  auto options = std::make_shared<DemoOptions>();
  CLI::App* demo = app.add_subcommand("demo", "Stories, a tokenizer and two trained models in two minutes");
  demo->add_option("--minutes", options->minutes, "About how long it may take")->capture_default_str();
  demo->add_option("--out", options->out, "Where data and runs go")->capture_default_str();
  demo->add_option("--seed", options->seed, "Of stories and training")->capture_default_str();
  demo->callback([options] { run_demo(*options, default_exec()); });
}

}  // namespace ddl
