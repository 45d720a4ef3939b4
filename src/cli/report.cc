// ./ddl report: runs, studies, audits, or a stored document, as one page.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "audit/audit_document.h"
#include "cli/commands.h"
#include "core/error.h"
#include "core/json.h"
#include "io/file.h"
#include "report/document.h"
#include "report/page.h"
#include "report/run_records.h"
#include "report/runs_document.h"
#include "study/studies_document.h"
#include "study/study_document.h"

namespace ddl {
namespace {

struct ReportCommand {
  std::vector<std::string> paths;
  std::string out = "report.html", json, title;

  void execute() {
    Json document = read();
    if (!title.empty()) document["title"] = title;
    const std::string page = report_page(document);
    if (!json.empty()) write_file_atomic(json, to_text(document));
    write_file_atomic(out, page);
    fmt::print("{}: {}, {} kB; open it in a browser\n", out, document["title"].get<std::string>(),
               (page.size() + 999) / 1000);
  }

 private:
  Json read() const {
    const auto studies = std::count_if(paths.begin(), paths.end(), is_study_folder);
    if (studies == 1 && paths.size() == 1) return read_study_document(paths[0]).json();
    if (studies == std::ssize(paths)) return read_studies_document(paths).json();
    if (studies > 0)
      throw UserError("a page shows studies or runs, not both: {} of the {} given are studies", studies,
                      paths.size());
    std::vector<std::string> runs;
    std::vector<Json> audits;
    for (const std::string& path : paths) {
      if (!std::filesystem::is_regular_file(path)) {
        runs.push_back(path);
        continue;
      }
      const std::string text = read_file(path);
      if (paths.size() == 1 && !is_audit(text)) return parse_report_document(text, path);
      audits.push_back(parse_audit(text, path));
    }
    if (runs.empty()) return audits_document(audits).json();
    ReportDocument document = runs_document(read_all_runs(find_runs(runs)), title);
    add_audits(document, name_audits(audits));
    return document.json();
  }
};

}  // namespace

void add_report_command(Command app) {
  auto c = std::make_shared<ReportCommand>();
  Command report = app.add_command(
      "report", "Runs or a study as one page: answers, curves, differences, how to repeat them");
  report
      .add_option(
          "paths", c->paths,
          "Runs, or folders with runs in them; files that ddl audit wrote; folders of studies; or one "
          "document that --json wrote")
      .required();
  report.add_option("--out", c->out, "The page, which needs no network and no other file").show_default();
  report.add_option("--json", c->json, "Every number of the page as JSON, in this file");
  report.add_option("--title", c->title, "The title of the page (default: made from the runs)");
  report.on_run([c] { c->execute(); });
}

}  // namespace ddl
