// ./ddl demo
#include <memory>

#include "cli/commands.h"
#include "cli/demo_runs.h"
#include "core/exec.h"

namespace ddl {

void add_demo_command(Command app) {
  auto options = std::make_shared<DemoOptions>();
  Command demo = app.add_command("demo", "Stories, a tokenizer and two trained models in two minutes");
  demo.add_option("--minutes", options->minutes, "About how long it may take").show_default();
  demo.add_option("--out", options->out,
                  "Where data and runs go (default: demo, or demo-2 and so on where it exists)");
  demo.add_option("--seed", options->seed, "Decides the stories and the training").show_default();
  demo.on_run([options] {
    if (const int signal = run_demo(*options, default_exec()); signal != 0) throw ExitWithCode(128 + signal);
  });
}

}  // namespace ddl
