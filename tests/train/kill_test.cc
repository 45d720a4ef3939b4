// The program itself, killed at random moments, interrupted, and resumed.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "core/rng.h"
#include "io/checkpoint.h"
#include "small_run.h"

namespace ddl {
namespace {

using namespace std::chrono_literals;

class Program {
 public:
  explicit Program(const std::vector<std::string>& arguments) {
    std::vector<char*> argv;
    std::vector<std::string> all = {DDL_PROGRAM, "train"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    for (std::string& argument : all) argv.push_back(argument.data());
    argv.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) {
      const int null = ::open("/dev/null", O_WRONLY);
      ::dup2(null, 1);
      ::dup2(null, 2);
      ::setenv("DDL_THREADS", "1", 1);
      ::execv(DDL_PROGRAM, argv.data());
      ::_exit(127);
    }
  }
  void signal(int number) const { ::kill(pid_, number); }
  bool running() {
    if (!done_ && ::waitpid(pid_, &status_, WNOHANG) == pid_) done_ = true;
    return !done_;
  }
  int wait() {  // the exit code, or minus the signal
    if (!done_) ::waitpid(pid_, &status_, 0);
    done_ = true;
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : -WTERMSIG(status_);
  }

 private:
  pid_t pid_ = -1;
  int status_ = 0;
  bool done_ = false;
};

std::vector<std::string> arguments(const std::string& data, const std::string& out, bool resume,
                                   std::vector<std::string> sets) {
  std::vector<std::string> all = {"--data", data, "--out", out};
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
  for (const int number : {SIGINT, SIGTERM}) {
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

// A step of 500 micro-batches takes a second or more; the second signal comes long before it ends.
TEST(Kill, SecondInterruptStopsAtOnceAndLosesNothingSaved) {
  const TestFolder folder;
  const std::string data = make_data(folder), out = folder / "run";
  ASSERT_EQ(Program(arguments(data, out, false, {"train.steps=1", "train.accumulate=500"})).wait(), 0);
  const std::string weights = out + "/checkpoints/step-00000001/model.safetensors";
  const std::string before = contents_of(weights);

  Program program({"--out", out, "--resume", "--set", "train.steps=1000"});
  while (program.running() && records(out, "resume").empty()) std::this_thread::sleep_for(1ms);
  program.signal(SIGINT);
  std::this_thread::sleep_for(20ms);
  EXPECT_TRUE(program.running());  // the first signal waits for the step
  program.signal(SIGINT);
  EXPECT_EQ(program.wait(), 130);
  EXPECT_TRUE(records(out, "stopped").empty());  // which the end of the step would have written
  EXPECT_EQ(latest_valid_checkpoint(out + "/checkpoints")->step, 1);
  EXPECT_EQ(contents_of(weights), before);
}

TEST(Kill, ErrorsEndWithTwoAndLeaveNoFolder) {
  const TestFolder folder;
  EXPECT_EQ(Program({"--data", folder / "absent", "--out", folder / "run"}).wait(), 2);
  EXPECT_EQ(Program({"--set", "train.nonsense=1"}).wait(), 2);
  EXPECT_FALSE(std::filesystem::exists(folder / "run"));
}

}  // namespace
}  // namespace ddl
