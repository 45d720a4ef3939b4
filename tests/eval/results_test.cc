#include "eval/results.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <optional>

#include "core/error.h"
#include "eval/paper_results.h"
#include "test_folder.h"

namespace ddl {
namespace {

TaskResult result(const std::string& name, double acc, std::optional<double> acc_norm) {
  TaskResult r{name, 1.0, 0, 100, 200, std::string(64, 'a'), {{Metric::kAccuracy, acc, 0.01}}};
  if (acc_norm) r.metrics.push_back({Metric::kNormalisedAccuracy, *acc_norm, 0.02});
  return r;
}

EvalReport eight() {
  EvalReport report;
  double acc = 0.1;
  for (const std::string& name : paper_tasks()) {
    const bool only_acc = name == "social_iqa" || name == "winogrande";
    report.results.push_back(result(name, acc, only_acc ? std::nullopt : std::optional(acc + 0.08)));
    acc += 0.1;
  }
  return report;  // acc 0.1 ... 0.8, acc_norm 0.08 more for six of them
}

TEST(Report, JsonHasTheHarnessKeys) {
  EvalReport report;
  report.results = {result("piqa", 0.25, 0.5)};
  report.results.push_back(
      {"lambada_openai", 1.0, 0, 1, 1, "b", {{Metric::kPerplexity, 12.5, std::nullopt}}});
  const Json json = report_json(report);
  EXPECT_EQ(json["results"]["piqa"]["acc,none"], 0.25);
  EXPECT_EQ(json["results"]["piqa"]["acc_stderr,none"], 0.01);
  EXPECT_EQ(json["results"]["piqa"]["acc_norm,none"], 0.5);
  EXPECT_EQ(json["results"]["piqa"]["sample_len"], 100);
  EXPECT_EQ(json["results"]["lambada_openai"]["perplexity,none"], 12.5);
  EXPECT_EQ(json["results"]["lambada_openai"]["perplexity_stderr,none"], "N/A");
  EXPECT_EQ(json["versions"]["piqa"], 1.0);
  EXPECT_EQ(json["n-shot"]["piqa"], 0);
  EXPECT_EQ(json["n-samples"]["piqa"]["original"], 200);
  EXPECT_EQ(json["n-samples"]["piqa"]["effective"], 100);
  EXPECT_EQ(json["higher_is_better"]["piqa"]["acc_norm"], true);
  EXPECT_EQ(json["higher_is_better"]["lambada_openai"]["perplexity"], false);
  EXPECT_FALSE(json.contains("mean_of_eight"));
}

TEST(Report, MeanOfEightCountsEveryTaskTheSame) {
  const Json json = report_json(eight());
  EXPECT_NEAR(json["mean_of_eight"]["acc"].get<double>(), 0.45, 1e-12);
  EXPECT_NEAR(json["mean_of_eight"]["acc_norm"].get<double>(), 0.45 + 0.06, 1e-12);
  EXPECT_TRUE(contains(report_table(eight()), "mean of eight"));
  EvalReport seven = eight();
  seven.results.pop_back();
  EXPECT_FALSE(contains(report_table(seven), "mean of eight"));
}

TEST(Report, TableStandsInColumns) {
  EvalReport report;
  report.results = {result("piqa", 0.25, 0.5), result("winogrande", 0.75, std::nullopt)};
  EXPECT_EQ(report_table(report),
            "task           acc  stderr  acc_norm  stderr    N  shots  version  data\n"
            "piqa        0.2500  0.0100    0.5000  0.0200  100      0      1.0  aaaaaaaaaaaa\n"
            "winogrande  0.7500  0.0100                    100      0      1.0  aaaaaaaaaaaa\n");
  report.results.push_back(
      {"lambada_openai", 1.0, 0, 1, 1, "b", {{Metric::kPerplexity, 322338.25, std::nullopt}}});
  EXPECT_TRUE(contains(report_table(report), "  322338.250"));
}

TEST(Report, PaperBesideOurs) {
  const std::string table = paper_table(eight(), "ours");
  EXPECT_TRUE(contains(table, "18.00"));  // our arc_challenge
  EXPECT_TRUE(contains(table, "paper, small ddl-cc"));
  EXPECT_TRUE(contains(table, "82.30"));   // SciQ, medium ddl-cc, zero shots
  EXPECT_FALSE(contains(table, "82.60"));  // SciQ, small ddl-cc, one shot
  EXPECT_EQ(paper_json(1).size(), 12u);
  check_paper_shots(1);
  EXPECT_TRUE(contains(message_of<UserError>([] { check_paper_shots(5); }), "0 and 1"));
}

// A typing error in a row would show: the printed average is the mean of its eight, up to rounding.
TEST(Report, PaperAveragesAreMeans) {
  for (const PaperRow& row : paper_results()) {
    const double mean = std::accumulate(row.percent.begin(), row.percent.end(), 0.0) / 8;
    EXPECT_NEAR(mean, row.average, 0.01 + 1e-9) << row.size << " " << row.residual << " " << row.shots;
  }
  EXPECT_EQ(paper_results().size(), 24u);
}

}  // namespace
}  // namespace ddl
