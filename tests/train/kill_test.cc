// The program itself, killed at random moments, interrupted, and resumed.
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "core/rng.h"
#include "io/checkpoint_folder.h"
#include "program.h"
#include "small_run.h"

namespace ddl {
namespace {

using namespace std::chrono_literals;

std::vector<std::string> arguments(const std::string& data, const std::string& out, bool resume,
                                   std::vector<std::string> sets) {
  std::vector<std::string> all = {"train", "--data", data, "--out", out};
  if (resume) all.push_back("--resume");
  for (const std::string& set : small_sets(std::move(sets))) all.insert(all.end(), {"--set", set});
  return all;
}

// A checkpoint at every step, so that kills fall into the middle of writing one.
TEST(Kill, AnyMomentThenResumeRepeatsTheUninterruptedRun) {
  const TestFolder folder;
  const std::string data = make_data(folder), whole = folder / "whole", killed = folder / "killed";
  const std::vector<std::string> sets = {"train.steps=40", "checkpoint.every_steps=1", "eval.every=10"};
  ASSERT_EQ(Program(arguments(data, whole, false, sets)).wait(), 0);

  const Random random(3, "kill");
  int kills = 0;
  bool resume = false;
  for (std::uint64_t attempt = 0; attempt < 60; ++attempt) {
    Program program(arguments(data, killed, resume, sets));
    const auto delay = std::chrono::microseconds(random.below(attempt, 250'000));
    const auto until = std::chrono::steady_clock::now() + delay;
    while (std::chrono::steady_clock::now() < until && program.running()) std::this_thread::sleep_for(1ms);
    if (!program.running()) {
      ASSERT_EQ(program.wait(), 0);
      break;
    }
    program.signal(SIGKILL);
    EXPECT_EQ(program.wait(), -SIGKILL);
    ++kills;
    resume = std::filesystem::exists(killed + "/config.toml");  // else killed before there was a run
    if (kills >= 12) {                                          // enough; let it finish
      Program last(arguments(data, killed, resume, sets));
      ASSERT_EQ(last.wait(), 0);
      break;
    }
  }
  EXPECT_GE(kills, 2);
  EXPECT_EQ(trajectory(killed), trajectory(whole));
  for (const char* file : {"model.safetensors", "optimizer.safetensors"})
    EXPECT_EQ(contents_of(whole + "/checkpoints/step-00000040/" + file),
              contents_of(killed + "/checkpoints/step-00000040/" + file));
}

// The first signal finishes the step and saves; the run is then resumed where it stopped.
TEST(Kill, InterruptSavesAndSaysSo) {
  std::signal(SIGHUP, SIG_DFL);  // the tests may run under nohup, which the program respects
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    const TestFolder folder;
    const std::string data = make_data(folder), out = folder / "run";
    Program program(arguments(data, out, false, {"train.steps=1000000", "checkpoint.every_minutes=0"}));
    const auto deadline = std::chrono::steady_clock::now() + 60s;
    while (std::chrono::steady_clock::now() < deadline &&
           (!std::filesystem::exists(out + "/metrics.jsonl") || records(out, "step").size() < 3))
      std::this_thread::sleep_for(5ms);
    program.signal(number);
    EXPECT_EQ(program.wait(), 128 + number);
    const auto steps = records(out, "step");
    ASSERT_FALSE(steps.empty());
    const auto latest = latest_valid_checkpoint(out + "/checkpoints");
    ASSERT_TRUE(latest);
    EXPECT_EQ(latest->step, steps.back()["step"].get<Index>());
    EXPECT_EQ(records(out, "stopped").size(), 1u);
  }
}

// During the validation after the last step there is nothing left to stop: the run is done, and says so.
TEST(Kill, InterruptAfterTheLastStepIsTooLate) {
  const TestFolder folder;
  const std::string data = make_data(folder, "data", 4000), out = folder / "run";
  Program program(arguments(data, out, false, {"train.steps=2", "eval.every=1", "eval.windows=2000"}));
  while (program.running() &&
         (!std::filesystem::exists(out + "/metrics.jsonl") || records(out, "step").size() < 2))
    std::this_thread::sleep_for(1ms);
  program.signal(SIGINT);
  EXPECT_EQ(program.wait(), 0);
  EXPECT_EQ(records(out, "done").size(), 1u);
  EXPECT_EQ(records(out, "validation").size(), 2u);
}

// A micro-batch of 1000 rows takes half a second or more; both signals come while the third is under way.
TEST(Kill, SecondInterruptStopsAtOnceAndLosesNothingSaved) {
  const TestFolder folder;
  const std::string data = make_data(folder), out = folder / "run";
  ASSERT_EQ(Program(arguments(data, out, false, {"train.steps=1", "train.batch=1000"})).wait(), 0);
  const std::string weights = out + "/checkpoints/step-00000001/model.safetensors";
  const std::string before = contents_of(weights);

  const std::string printed = folder.write("printed", "");
  const int output = ::open(printed.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  Program program({"train", "--out", out, "--resume", "--set", "train.steps=1000", "--set", "eval.every=0",
                   "--set", "checkpoint.every_minutes=0"},
                  output);
  ::close(output);
  while (program.running() && records(out, "step").size() < 2) std::this_thread::sleep_for(1ms);
  std::this_thread::sleep_for(50ms);  // a signal between two steps would end the run there
  program.signal(SIGINT);
  while (program.running() && !contains(contents_of(printed), "a second Ctrl-C stops at once"))
    std::this_thread::sleep_for(1ms);
  EXPECT_TRUE(program.running());  // the first signal waits for the micro-batch, and says so while it waits
  program.signal(SIGINT);
  EXPECT_EQ(program.wait(), 130);
  EXPECT_TRUE(records(out, "stopped").empty());  // which the end of the step would have written
  EXPECT_EQ(latest_valid_checkpoint(out + "/checkpoints")->step, 1);
  EXPECT_EQ(contents_of(weights), before);
}

// A live line that wraps leaves its first row behind each time it is drawn again.
TEST(Terminal, TheLiveLineFitsIt) {
  const TestFolder folder;
  const std::string text = shown_on_terminal(
      arguments(make_data(folder), folder / "run", false, {"train.steps=20", "log.floor=true"}), 50);
  std::size_t lines = 0;
  const std::string start = "\r\033[Kstep ";
  for (std::size_t at = 0; (at = text.find(start, at)) != std::string::npos; ++lines) {
    const std::size_t begin = at + 4, end = text.find_first_of("\r\n", begin);  // without the "\r\033[K"
    const std::string line = text.substr(begin, end - begin);
    EXPECT_LT(line.size(), 50u) << line;
    EXPECT_TRUE(contains(line, "| loss ") && line.ends_with(" left")) << line;
    at = end;
  }
  EXPECT_GT(lines, 0u) << text;
}

TEST(Kill, ErrorsEndWithTwoAndLeaveNoFolder) {
  const TestFolder folder;
  EXPECT_EQ(Program({"train", "--data", folder / "absent", "--out", folder / "run"}).wait(), 2);
  EXPECT_EQ(Program({"train", "--set", "train.nonsense=1"}).wait(), 2);
  EXPECT_FALSE(std::filesystem::exists(folder / "run"));
  // Refused late, by data that is too short; a folder that was there stays, as it was.
  const std::string data = make_data(folder);
  std::filesystem::create_directory(folder / "empty");
  for (const std::string out : {"run", "empty"})
    EXPECT_EQ(
        Program({"train", "--data", data, "--out", folder / out, "--set", "model.context=100000"}).wait(), 2);
  EXPECT_FALSE(std::filesystem::exists(folder / "run"));
  EXPECT_TRUE(std::filesystem::is_empty(folder / "empty"));
}

}  // namespace
}  // namespace ddl
