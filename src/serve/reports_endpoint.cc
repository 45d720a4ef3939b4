// Reports, as `ddl report` makes them: of a study, of audits, or of runs.
#include <algorithm>
#include <string>
#include <vector>

#include "audit/audit_document.h"
#include "core/error.h"
#include "io/file.h"
#include "report/page.h"
#include "report/run_records.h"
#include "report/runs_document.h"
#include "serve/api_error.h"
#include "serve/endpoints.h"
#include "study/study_document.h"

namespace ddl {
namespace {

constexpr std::size_t kReportRuns = 64;  // a report reads all their records

[[noreturn]] void fail_unknown(const char* what, const char* list) {
  throw ApiError(404, fmt::format("there is no {} of this name; GET {} lists them", what, list), what,
                 fmt::format("{}_not_found", what));
}

Json study_report(const std::string& name, ReportShelf& reports) {
  const auto folder = reports.study_folder(name);
  if (!folder) fail_unknown("study", "/api/studies");
  return read_study_document(*folder).json();
}

Json audit_report(const std::vector<std::string>& names, ReportShelf& reports) {
  std::vector<Json> audits;
  for (const std::string& name : names) {
    const auto file = reports.audit_file(name);
    if (!file) fail_unknown("audit", "/api/audits");
    audits.push_back(parse_audit(read_file(*file), name));
  }
  return audits_document(audits).json();
}

Json runs_report(const std::vector<std::string>& names, RunShelf& runs) {
  const auto folders = names.empty() ? runs.all_folders() : runs.folders(names);
  if (std::find(folders.begin(), folders.end(), "") != folders.end()) fail_unknown("run", "/api/runs");
  if (folders.empty()) throw ApiError(404, "there are no runs yet", "", "run_not_found");
  if (folders.size() > kReportRuns)
    throw ApiError(400,
                   fmt::format("a report shows at most {} runs, these are {}; name some with run=NAME",
                               kReportRuns, folders.size()),
                   "run");
  return runs_document(read_all_runs(folders)).json();
}

Json report_of(const HttpRequest& request, RunShelf& runs, ReportShelf& reports) {
  const auto studies = request.all("study"), audits = request.all("audit"), names = request.all("run");
  if (int{!studies.empty()} + int{!audits.empty()} + int{!names.empty()} > 1 || studies.size() > 1)
    throw ApiError(400, "a report is of one study, or of audits, or of runs", "study");
  if (audits.size() > kReportRuns)
    throw ApiError(400, fmt::format("a report shows at most {} audits", kReportRuns), "audit");
  try {
    if (!studies.empty()) return study_report(studies[0], reports);
    if (!audits.empty()) return audit_report(audits, reports);
    return runs_report(names, runs);
  } catch (const UserError&) {  // its text names paths of this machine
    throw ApiError(500, "the files of this report cannot be read; `ddl report` of them says why", "",
                   "report_not_readable");
  }
}

}  // namespace

void add_reports(Router& router, RunShelf& runs, ReportShelf& reports) {
  router.add("GET", "/api/studies", Router::On::kWorker,
             [&reports](const HttpRequest&, const HttpReplyPtr& reply) {
               send_json(reply, Json{{"studies", reports.studies()}});
             });
  router.add("GET", "/api/audits", Router::On::kWorker,
             [&reports](const HttpRequest&, const HttpReplyPtr& reply) {
               send_json(reply, Json{{"audits", reports.audits()}});
             });
  router.add("GET", "/api/reports", Router::On::kWorker,
             [&runs, &reports](const HttpRequest& request, const HttpReplyPtr& reply) {
               send_json(reply, report_of(request, runs, reports));
             });
  // The page brings its own, stricter policy.
  router.add("GET", "/report", Router::On::kWorker,
             [&runs, &reports](const HttpRequest& request, const HttpReplyPtr& reply) {
               reply->send({.content_type = "text/html; charset=utf-8",
                            .body = report_page(report_of(request, runs, reports)),
                            .headers = {{"Content-Security-Policy", "frame-ancestors 'none'"}}});
             });
}

}  // namespace ddl
