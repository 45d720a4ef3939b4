// Runs and what they recorded, as JSON for the page; and the report of some of them.
#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>

#include "core/error.h"
#include "report/page.h"
#include "report/run_records.h"
#include "report/runs_document.h"
#include "serve/api_error.h"
#include "serve/endpoints.h"

namespace ddl {
namespace {

constexpr Index kPoints = 500, kMostPoints = 20000;
constexpr std::size_t kReportRuns = 64;  // a report reads all their records

Index whole_parameter(const HttpRequest& request, const std::string& name, Index otherwise, Index low,
                      Index high) {
  const auto values = request.all(name);
  if (values.empty()) return otherwise;
  const std::string& text = values.back();
  Index value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < low || value > high)
    throw ApiError(400, fmt::format("{}: expected a whole number from {} to {}", name, low, high), name);
  return value;
}

Json report_of(const HttpRequest& request, RunShelf& shelf) {
  const auto names = request.all("run");
  const auto folders = names.empty() ? shelf.all_folders() : shelf.folders(names);
  if (std::find(folders.begin(), folders.end(), "") != folders.end())
    throw ApiError(404, "there is no run of this name; GET /api/runs lists them", "run", "run_not_found");
  if (folders.empty()) throw ApiError(404, "there are no runs yet", "", "run_not_found");
  if (folders.size() > kReportRuns)
    throw ApiError(400,
                   fmt::format("a report shows at most {} runs, these are {}; name some with run=NAME",
                               kReportRuns, folders.size()),
                   "run");
  return runs_document(read_all_runs(folders)).json();
}

}  // namespace

void add_runs(Router& router, RunShelf& shelf) {
  router.add("GET", "/api/runs", Router::On::kWorker,
             [&shelf](const HttpRequest&, const HttpReplyPtr& reply) { send_json(reply, shelf.list()); });
  router.add("GET", "/api/runs/", Router::On::kWorker,
             [&shelf](const HttpRequest& request, const HttpReplyPtr& reply) {
               const std::string name = request.path.substr(std::string_view("/api/runs/").size());
               const Index after = whole_parameter(request, "after", -1, -1, 1'000'000'000'000'000);
               const Index points = whole_parameter(request, "points", kPoints, 1, kMostPoints);
               const Json run = shelf.run(name, after, points);
               if (run.is_null())
                 throw ApiError(404, "there is no run of this name; GET /api/runs lists them", "name",
                                "run_not_found");
               send_json(reply, run);
             });
  router.add("GET", "/api/reports", Router::On::kWorker,
             [&shelf](const HttpRequest& request, const HttpReplyPtr& reply) {
               send_json(reply, report_of(request, shelf));
             });
  // The page brings its own, stricter policy.
  router.add("GET", "/report", Router::On::kWorker,
             [&shelf](const HttpRequest& request, const HttpReplyPtr& reply) {
               reply->send({.content_type = "text/html; charset=utf-8",
                            .body = report_page(report_of(request, shelf)),
                            .headers = {{"Content-Security-Policy", "frame-ancestors 'none'"}}});
             });
}

}  // namespace ddl
