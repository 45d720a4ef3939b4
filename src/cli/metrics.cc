// ./ddl metrics: what runs recorded, as a table for other programs.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "report/metrics_table.h"

namespace ddl {
namespace {

struct MetricsCommand {
  std::vector<std::string> paths, columns;
  bool csv = false, json = false;

  void execute() const {
    // A person sees what fits a screen; a program all there is.
    std::vector<std::string> wanted = columns;
    if (wanted.empty() && !csv && !json) wanted = {"loss", "lr", "grad_norm"};
    const MetricsTable table = metrics_table(paths, wanted);
    std::fputs((json ? to_json_lines(table) : csv ? to_csv(table) : to_screen(table)).c_str(), stdout);
  }
};

}  // namespace

void add_metrics_command(Command app) {
  auto c = std::make_shared<MetricsCommand>();
  Command metrics = app.add_command("metrics", "What runs recorded, as a table: a row per run and step");
  metrics.add_option("runs", c->paths, "Runs, or folders with runs in them").required();
  Option csv = metrics.add_flag("--csv", c->csv, "Comma-separated values, every column");
  metrics.add_flag("--json", c->json, "One JSON object per row").excludes(csv);
  metrics
      .add_option("--columns", c->columns,
                  "Which, and in which order: loss,lr,validation_loss,gate_0 (default on the screen: "
                  "loss,lr,grad_norm)")
      .separated_by(',');
  metrics.on_run([c] { c->execute(); });
}

}  // namespace ddl
