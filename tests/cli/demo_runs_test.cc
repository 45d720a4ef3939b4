// The demonstration: a short one to its end, and one that is interrupted.
#include "cli/demo_runs.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "train/program.h"
#include "train/small_run.h"

namespace ddl {
namespace {

using namespace std::chrono_literals;

TEST(Demo, LeavesTwoRunsOfItsSeedAndShowsThem) {
  const TestFolder folder;
  testing::internal::CaptureStdout();
  const int signal = run_demo({.minutes = 0.01, .out = folder / "demo", .seed = 5}, kOneThread);
  const std::string shown = testing::internal::GetCapturedStdout();
  EXPECT_EQ(signal, 0);
  for (const char* part : {"Training baseline", "Training ddl-cc", "validation loss",
                           "What the gates of ddl-cc", "A story by ddl-cc", "Next:"})
    EXPECT_TRUE(contains(shown, part)) << part << " is missing in:\n" << shown;
  for (const char* rule : {"baseline", "ddl-cc"}) {
    const std::string run = folder / "demo/" + rule;
    const RunConfig config = load_run_config({"", contents_of(run + "/config.toml"), "", {}});
    EXPECT_EQ(config.model.residual(), rule);
    EXPECT_EQ(config.train.seed, 5);
    EXPECT_EQ(records(run, "done").size(), 1u);
    EXPECT_EQ(records(run, "validation").size(), 1u);
  }
}

TEST(Demo, InterruptedItEndsWithTheSignalsCode) {
  const TestFolder folder;
  const std::string metrics = folder / "demo/baseline/metrics.jsonl";
  Program program({"demo", "--out", folder / "demo"});
  while (program.running() && !std::filesystem::exists(metrics)) std::this_thread::sleep_for(5ms);
  program.signal(SIGINT);
  EXPECT_EQ(program.wait(), 130);
  EXPECT_EQ(records(folder / "demo/baseline", "stopped").size(), 1u);
  EXPECT_FALSE(std::filesystem::exists(folder / "demo/ddl-cc"));
}

}  // namespace
}  // namespace ddl
