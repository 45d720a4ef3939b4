#include "eval/results.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "core/error.h"
#include "core/index.h"
#include "eval/paper_results.h"

namespace ddl {
namespace {

constexpr Metric kColumns[] = {Metric::kAccuracy, Metric::kNormalisedAccuracy, Metric::kPerplexity};

// The results of the paper's tasks in the paper's order; null where one was not run.
std::vector<const TaskResult*> paper_order(const EvalReport& report) {
  std::vector<const TaskResult*> found;
  for (const std::string& name : paper_tasks()) {
    const auto result = std::find_if(report.results.begin(), report.results.end(),
                                     [&](const TaskResult& r) { return r.task == name; });
    found.push_back(result == report.results.end() ? nullptr : &*result);
  }
  return found;
}

struct Means {
  double acc = 0, headline = 0;
};

// Of the paper's eight tasks, each counting the same; none where one is missing.
std::optional<Means> paper_means(const EvalReport& report) {
  const auto results = paper_order(report);
  const auto has_accuracy = [](const TaskResult* r) { return r && r->find(Metric::kAccuracy); };
  if (!std::all_of(results.begin(), results.end(), has_accuracy)) return std::nullopt;
  Means means;
  for (const TaskResult* result : results) {
    means.acc += result->find(Metric::kAccuracy)->value / static_cast<double>(results.size());
    means.headline += result->headline() / static_cast<double>(results.size());
  }
  return means;
}

// "piqa, 3 documents; the first: WHY"; the reason of a whole task names it.
std::string left_out_line(const LeftOut& left) {
  if (left.documents == 0) return left.reason;
  return fmt::format("{}, {} document{}: {}", left.task, left.documents,
                     left.documents == 1 ? "" : "s; the first", left.reason);
}

std::string number(Metric metric, double value) {
  return fmt::format("{:.{}f}", value, metric == Metric::kPerplexity ? 3 : 4);
}

// Columns as wide as their widest cell; the first and the last to the left, numbers to the right.
std::string layout(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths(rows.front().size(), 0);
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  for (const auto& row : rows) {
    text += fmt::format("{:<{}}", row.front(), widths.front());
    for (std::size_t i = 1; i + 1 < row.size(); ++i) text += fmt::format("  {:>{}}", row[i], widths[i]);
    text += fmt::format("  {}\n", row.back());
  }
  return text;
}

}  // namespace

std::string report_table(const EvalReport& report) {
  std::vector<Metric> columns;
  for (const Metric metric : kColumns)
    if (std::any_of(report.results.begin(), report.results.end(),
                    [&](const auto& r) { return r.find(metric); }))
      columns.push_back(metric);
  std::vector<std::vector<std::string>> rows = {{"task"}};
  for (const Metric metric : columns) rows.back().insert(rows.back().end(), {metric_name(metric), "stderr"});
  rows.back().insert(rows.back().end(), {"N", "shots", "version", "data"});
  for (const TaskResult& result : report.results) {
    std::vector<std::string>& row = rows.emplace_back(1, result.task);
    for (const Metric metric : columns) {
      const MetricResult* m = result.find(metric);
      row.push_back(m ? number(metric, m->value) : "");
      row.push_back(m && m->error ? number(metric, *m->error) : "");
    }
    row.insert(row.end(), {fmt::format("{}", result.documents), fmt::format("{}", result.shots),
                           fmt::format("{:.1f}", result.version), result.data_hash.substr(0, 12)});
  }
  const auto means = paper_means(report);
  if (means) {
    std::vector<std::string>& row = rows.emplace_back(1, "mean of eight");
    for (const Metric metric : columns) {
      row.push_back(metric == Metric::kAccuracy             ? number(metric, means->acc)
                    : metric == Metric::kNormalisedAccuracy ? number(metric, means->headline)
                                                            : "");
      row.push_back("");
    }
    row.insert(row.end(), {"", "", "", ""});
  }
  std::string text = layout(rows);
  if (means) text += "The mean counts each task the same; for acc_norm acc where a task has none.\n";
  for (const LeftOut& left : report.left_out) text += fmt::format("left out: {}\n", left_out_line(left));
  return text;
}

Json report_json(const EvalReport& report) {
  Json json = make_record("eval");
  for (const TaskResult& result : report.results) {
    Json& entry = json["results"][result.task];
    entry["alias"] = result.task;
    entry["sample_len"] = result.documents;
    for (const MetricResult& m : result.metrics) {
      const std::string name = metric_name(m.metric);
      entry[name + ",none"] = m.value;
      entry[name + "_stderr,none"] = m.error ? Json(*m.error) : Json("N/A");
      json["higher_is_better"][result.task][name] = m.metric != Metric::kPerplexity;
    }
    json["versions"][result.task] = result.version;
    json["n-shot"][result.task] = result.shots;
    json["n-samples"][result.task] = {{"original", result.documents_in_split},
                                      {"effective", result.documents}};
    json["data_hash"][result.task] = result.data_hash;
  }
  for (const LeftOut& left : report.left_out)
    json["left_out"].push_back({{"task", left.task},
                                {"documents", left.documents == 0 ? Json("all") : Json(left.documents)},
                                {"reason", left.reason}});
  if (const auto means = paper_means(report))
    json["mean_of_eight"] = {{"acc", means->acc}, {"acc_norm", means->headline}};
  return json;
}

void check_paper_shots(Index shots) {
  const auto rows = paper_results();
  if (std::none_of(rows.begin(), rows.end(), [&](const PaperRow& row) { return row.shots == shots; }))
    throw UserError("--paper: the paper has tables for 0 and 1 shots, not for {}", shots);
}

std::string paper_table(const EvalReport& report, const std::string& our_name) {
  constexpr const char* kHeads[] = {"ARC-C", "ARC-E", "HellaSw", "OBQA", "PIQA", "SciQ", "SIQA", "WinoGr"};
  std::string text = fmt::format("\n{:<26}", "percent right");
  for (const char* head : kHeads) text += fmt::format("{:>9}", head);
  text += fmt::format("{:>9}\n{:<26}", "mean", our_name);
  for (const TaskResult* result : paper_order(report))
    text += result ? fmt::format("{:>9.2f}", 100 * result->headline()) : fmt::format("{:>9}", "-");
  const auto means = paper_means(report);
  text += (means ? fmt::format("{:>9.2f}", 100 * means->headline) : fmt::format("{:>9}", "-")) + "\n";
  const Index shots = report.results.empty() ? 0 : report.results.front().shots;
  for (const PaperRow& row : paper_results()) {
    if (row.shots != shots) continue;
    text += fmt::format("{:<26}", fmt::format("paper, {} {}", row.size, row.residual));
    for (const double percent : row.percent) text += fmt::format("{:>9.2f}", percent);
    text += fmt::format("{:>9.2f}\n", row.average);
  }
  return text + "acc_norm, or acc where a task has none; the paper's models saw 49B tokens of FineWeb-Edu\n";
}

Json paper_json(Index shots) {
  Json rows = Json::array();
  for (const PaperRow& row : paper_results()) {
    if (row.shots != shots) continue;
    Json entry = {
        {"residual", row.residual}, {"size", row.size}, {"shots", row.shots}, {"average", row.average}};
    for (std::size_t i = 0; i < row.percent.size(); ++i) entry["percent"][paper_tasks()[i]] = row.percent[i];
    rows.push_back(std::move(entry));
  }
  return rows;
}

}  // namespace ddl
