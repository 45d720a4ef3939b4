// ./ddl audit: what the residual stream of a trained model does on real text.
#include <cstdio>
#include <memory>
#include <string>

#include "audit/audit_document.h"
#include "audit/audit_model.h"
#include "cli/commands.h"
#include "core/exec.h"
#include "core/json.h"
#include "io/file.h"
#include "report/page.h"

namespace ddl {
namespace {

struct AuditCommand {
  AuditRequest request;
  std::string out;
  bool json = false;

  void execute() {
    if (!out.empty()) make_folders(out);  // an impossible one is an error now, not after minutes
    if (!json) request.progress = stderr;
    const Json audit = audit_model(request, default_exec());
    if (!out.empty()) {
      write_file_atomic(out + "/audit.json", to_line(audit) + "\n");
      write_file_atomic(out + "/audit.html", report_page(audits_document({audit}).json()));
    }
    std::fputs(json ? (to_line(audit) + "\n").c_str() : audit_screen(audit).c_str(), stdout);
    if (!json && !out.empty()) fmt::print("Pictures: {0}/audit.html, all numbers: {0}/audit.json\n", out);
  }
};

}  // namespace

void add_audit_command(Command app) {
  auto c = std::make_shared<AuditCommand>();
  Command audit = app.add_command(
      "audit", "What a trained model's residual stream does: interventions, survival of writes, gates, lens");
  audit.add_option("run", c->request.model, "A run, a checkpoint, or a folder with config.json and weights")
      .required();
  Option data = audit.add_option("--data", c->request.data,
                                 "A dataset, whose validation split is used (default: the run's own)");
  audit.add_option("--text", c->request.text, "A text file or a folder of texts instead").excludes(data);
  audit.add_option("--tokenizer", c->request.tokenizer, "A tokenizer, where the model's folder has none");
  audit.add_option("--tokens", c->request.tokens, "Tokens to look at, at most")
      .range(1, Index{1} << 30)
      .show_default();
  audit.add_flag("--json", c->json, "All numbers as one JSON object (docs/audit.md) instead of the table");
  audit.add_option("--out", c->out,
                   "A folder for audit.html (heat maps and curves) and audit.json (the numbers)");
  audit.on_run([c] { c->execute(); });
}

}  // namespace ddl
