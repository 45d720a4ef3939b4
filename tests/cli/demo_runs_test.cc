// The demonstration: a short one to its end, and one that is interrupted.
#include "cli/demo_runs.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "small_run.h"
#include "train/program.h"

namespace ddl {
namespace {

using namespace std::chrono_literals;

TEST(Demo, LeavesTwoRunsOfItsSeedAndShowsThem) {
  const TestFolder folder;
  testing::internal::CaptureStdout();
  const int signal = run_demo({.minutes = 0.01, .out = folder / "demo", .seed = 5}, kOneThread);
  const std::string shown = testing::internal::GetCapturedStdout();
  EXPECT_EQ(signal, 0);
  for (const char* part :
       {"Training baseline and ddl-cc in turns", "validation loss", "b baseline", "d ddl-cc",
        "What the gates of ddl-cc", "A story by baseline", "A story by ddl-cc", "report.html", "Next:"})
    EXPECT_TRUE(contains(shown, part)) << part << " is missing in:\n" << shown;
  for (const char* rule : {"baseline", "ddl-cc"}) {
    const std::string run = folder / "demo/" + rule;
    const RunConfig config = load_run_config({"", contents_of(run + "/config.toml"), "", {}});
    EXPECT_EQ(config.model.residual(), rule);
    EXPECT_EQ(config.train.seed, 5);
    EXPECT_EQ(records(run, "done").size(), 1u);
    EXPECT_EQ(records(run, "validation").size(), 1u);
    EXPECT_EQ(config.train.steps, std::ssize(records(run, "step")));
  }
  const std::string page = contents_of(folder / "demo/report.html");
  EXPECT_TRUE(contains(page, "<!doctype html>"));
  EXPECT_FALSE(contains(page, "./ddl train")) << "no command repeats a run whose rate followed the clock";
  EXPECT_TRUE(contains(page, "./ddl demo --seed N"));
  // In turns on the same batches: the same steps with the same rates.
  const auto one = records(folder / "demo/baseline", "step"), other = records(folder / "demo/ddl-cc", "step");
  ASSERT_EQ(one.size(), other.size());
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_EQ(one[i]["lr"], other[i]["lr"]);
}

// The clock decides, whatever a step takes. What comes after training is worth a few steps.
TEST(Demo, KeepsToItsTime) {
  const TestFolder folder;
  testing::internal::CaptureStdout();
  const auto start = std::chrono::steady_clock::now();
  run_demo({.minutes = 0.15, .out = folder / "demo"}, kOneThread);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const std::string shown = testing::internal::GetCapturedStdout();
  EXPECT_GT(seconds, 4.5) << shown;  // at least half of what the stories leave is training
  double steps = 0, computing = 0;   // the machine may be busy with other tests
  for (const char* rule : {"baseline", "ddl-cc"})
    for (const Json& record : records(folder / "demo" + std::string("/") + rule, "step"))
      steps += 1, computing += record["step_s"].get<double>();
  EXPECT_LT(seconds, 14 + 20 * computing / steps) << shown;
  // The first twentieth of the steps, which begins at the loss of guessing, would press the rest of the curves into a line.
  const int left = static_cast<int>(steps / 2) / 20 + 1;
  EXPECT_TRUE(contains(shown, fmt::format("\n{:11}{} ", "", left))) << left << "\n" << shown;
  if (steps / 2 >= 8) {
    EXPECT_TRUE(contains(shown, " (standard error over batches, not over seeds)")) << shown;
  }
}

TEST(Demo, InterruptedItEndsWithTheSignalsCode) {
  const TestFolder folder;
  Program program({"demo", "--out", folder / "demo"});
  const auto has_stepped = [&](const char* rule) {
    const std::string metrics = folder / "demo/" + std::string(rule) + "/metrics.jsonl";
    return std::filesystem::exists(metrics) &&
           contents_of(metrics).find("\"event\":\"step\"") != std::string::npos;
  };
  while (program.running() && !(has_stepped("baseline") && has_stepped("ddl-cc")))
    std::this_thread::sleep_for(5ms);
  program.signal(SIGINT);
  EXPECT_EQ(program.wait(), 130);
  EXPECT_EQ(records(folder / "demo/baseline", "stopped").size(), 1u);
  EXPECT_EQ(records(folder / "demo/ddl-cc", "stopped").size(), 1u) << "both stop together";
}

}  // namespace
}  // namespace ddl
