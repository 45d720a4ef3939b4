// ./ddl audit: what the residual stream of a trained model does on real text.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "audit/audit_average.h"
#include "audit/audit_document.h"
#include "audit/audit_model.h"
#include "cli/commands.h"
#include "core/error.h"
#include "core/exec.h"
#include "core/json.h"
#include "core/shell_word.h"
#include "io/file.h"
#include "report/page.h"
#include "study/study_audits.h"
#include "study/study_document.h"

namespace ddl {
namespace {

struct AuditCommand {
  AuditRequest request;
  std::string out;
  bool json = false;

  void execute() {
    if (!json) request.progress = stderr;
    if (is_study_folder(request.model))
      audit_study_folder();
    else
      audit_one();
  }

 private:
  void audit_one() const {
    if (!out.empty()) make_folders(out);  // an impossible one is an error now, not after minutes
    const Json audit = audit_model(request, default_exec());
    if (!out.empty()) {
      write_file_atomic(out + "/audit.json", to_line(audit) + "\n");
      write_file_atomic(out + "/audit.html", report_page(audits_document({audit}).json()));
    }
    const std::string name = audit["model"]["folder"];
    std::fputs(json ? (to_line(audit) + "\n").c_str() : audit_screen({{name, {audit}}}).c_str(), stdout);
    if (!json && !out.empty()) fmt::print("Pictures: {0}/audit.html, all numbers: {0}/audit.json\n", out);
  }

  // Every confirmed model that has no audit yet, and then the average of each arm.
  void audit_study_folder() const {
    const StudyFolder folder{request.model};
    if (!out.empty())
      throw UserError("{} is a study: its audits are kept in {}; leave out --out", folder.path,
                      folder.audits());
    const Study study = read_study(folder.study());
    std::vector<std::string> problems;
    const Records records = read_records(folder, study, problems);
    const StudyAuditCounts counts = audit_study(folder, study, records, request, default_exec());
    const std::vector<AuditGroup> groups = read_study_audits(folder, study, records);
    if (json) {
      for (const AuditGroup& group : groups)
        fmt::print("{}\n", to_line({{"name", group.name}, {"audit", average_audits(group.audits)}}));
      return;
    }
    if (groups.empty())
      throw UserError("{}: no confirmed model is there to audit ({} were trained elsewhere or removed)",
                      folder.path, counts.missing);
    std::fputs(audit_screen(groups).c_str(), stdout);
    fmt::print("{} models audited now, {} before", counts.made, counts.there);
    if (counts.missing > 0) fmt::print("; {} are not in {}", counts.missing, folder.runs());
    fmt::print(". Next: ./ddl report {}\n", shell_word(folder.path));
  }
};

}  // namespace

void add_audit_command(Command app) {
  auto c = std::make_shared<AuditCommand>();
  Command audit = app.add_command(
      "audit", "What a trained model's residual stream does: interventions, survival of writes, gates, lens");
  audit
      .add_option("run", c->request.model,
                  "A run, a checkpoint, a folder with config.json and weights, or a study")
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
