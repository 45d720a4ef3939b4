// ./ddl report: runs, a study, or a document of another command, as one page.
#include <cstdio>
#include <filesystem>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "core/error.h"
#include "core/json.h"
#include "io/file.h"
#include "report/document.h"
#include "report/page.h"
#include "report/run_records.h"
#include "report/runs_document.h"
#include "study/study_document.h"
#include "study/study_run.h"

namespace ddl {
namespace {

struct ReportCommand {
  std::vector<std::string> paths;
  std::string out = "report.html", json, title;

  void execute() {
    const Json document = read();
    const std::string page = report_page(document);
    if (!json.empty()) write_file_atomic(json, to_text(document));
    write_file_atomic(out, page);
    fmt::print("{}: {}, {} kB; open it in a browser\n", out, document["title"].get<std::string>(),
               (page.size() + 999) / 1000);
  }

 private:
  Json read() const {
    if (paths.size() == 1 && std::filesystem::is_regular_file(paths[0])) {
      Json document = parse_report_document(read_file(paths[0]), paths[0]);
      if (!title.empty()) document["title"] = title;
      return document;
    }
    if (paths.size() == 1 && std::filesystem::exists(StudyFolder{paths[0]}.study())) {
      const StudyFolder folder{paths[0]};
      const Study study = read_study(folder.study());
      std::vector<std::string> problems;
      const Records records = Records::read(folder.records(), study, &problems);
      if (std::filesystem::exists(folder.problems())) {
        std::istringstream lines(read_file(folder.problems()));
        for (std::string line; std::getline(lines, line);) problems.push_back(line);
      }
      Json document = study_document(study, records, problems).json();
      if (!title.empty()) document["title"] = title;
      return document;
    }
    return runs_document(read_all_runs(find_runs(paths)), title).json();
  }
};

}  // namespace

void add_report_command(Command app) {
  auto c = std::make_shared<ReportCommand>();
  Command report = app.add_command(
      "report", "Runs or a study as one page: answers, curves, differences, how to repeat them");
  report
      .add_option("paths", c->paths,
                  "Runs, or folders with runs in them; a study's folder; or one document that --json wrote")
      .required();
  report.add_option("--out", c->out, "The page, which needs no network and no other file").show_default();
  report.add_option("--json", c->json, "Every number of the page as JSON, in this file");
  report.add_option("--title", c->title, "The title of the page (default: made from the runs)");
  report.on_run([c] { c->execute(); });
}

}  // namespace ddl
