// What others do to a run while it trains: readers that leave, data and folders that change under it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "io/checkpoint_folder.h"
#include "io/sha256.h"
#include "program.h"
#include "small_run.h"

namespace ddl {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

class Outside : public ::testing::Test {
 protected:
  std::vector<std::string> arguments(std::vector<std::string> sets) const {
    std::vector<std::string> all = {"train", "--data", data_, "--out", out_};
    for (const std::string& set : small_sets(std::move(sets))) all.insert(all.end(), {"--set", set});
    return all;
  }
  int open_printed() const { return ::open(printed_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC); }
  std::string printed() const { return contents_of(printed_); }
  std::size_t steps() const { return fs::exists(out_ + "/metrics.jsonl") ? records(out_, "step").size() : 0; }
  // Trains, waits for some steps, does `harm`, and returns the exit code.
  template <class Harm>
  int harmed(Harm&& harm, std::vector<std::string> sets = {"train.steps=1000000"}) {
    sets.insert(sets.end(), {"eval.every=0", "checkpoint.every_minutes=0"});
    const int output = open_printed();
    Program program(arguments(sets), output);
    ::close(output);
    while (program.running() && steps() < 3) std::this_thread::sleep_for(2ms);
    harm(program);
    return program.wait();
  }
  std::string shard(const char* split = "_train_") const {
    for (const auto& entry : fs::directory_iterator(data_))
      if (contains(entry.path().filename().string(), split) && entry.path().extension() == ".bin")
        return entry.path().string();
    return "";
  }

  TestFolder folder_;
  std::string data_ = make_data(folder_), out_ = folder_ / "run", printed_ = folder_.write("printed", "");
};

TEST_F(Outside, AReaderThatLeavesDoesNotStopTheRun) {
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
  Program program(arguments({"train.steps=60", "log.screen_seconds=0"}), pipe[1]);
  ::close(pipe[1]);
  std::array<char, 64> some{};
  ASSERT_GT(::read(pipe[0], some.data(), some.size()), 0);
  ::close(pipe[0]);
  EXPECT_EQ(program.wait(), 0);
  EXPECT_EQ(records(out_, "step").size(), 60u);
  EXPECT_EQ(records(out_, "done").size(), 1u);
  EXPECT_EQ(latest_valid_checkpoint(out_ + "/checkpoints")->step, 60);
}

// A step of a million micro-batches takes minutes; the signal must not wait for it, and the steps before it stay.
TEST_F(Outside, ASignalStopsBetweenMicroBatches) {
  const int output = open_printed();
  Program program(arguments({"train.steps=2", "train.accumulate=1000000"}), output);
  ::close(output);
  while (program.running() && !contains(printed(), "tokens to train on")) std::this_thread::sleep_for(2ms);
  std::this_thread::sleep_for(100ms);
  const auto asked = std::chrono::steady_clock::now();
  program.signal(SIGTERM);
  EXPECT_EQ(program.wait(), 128 + SIGTERM);
  EXPECT_LT(std::chrono::steady_clock::now() - asked, 60s);
  EXPECT_TRUE(contains(printed(), "step 1 was given up")) << printed();
  EXPECT_EQ(latest_valid_checkpoint(out_ + "/checkpoints")->step, 0);
}

TEST_F(Outside, AStepGivenUpLeavesNoTrace) {
  const std::vector<std::string> sets = {"train.steps=4", "train.accumulate=60"};
  const std::string whole = out_ + "-whole", run = out_;
  out_ = whole;
  ASSERT_EQ(Program(arguments(sets)).wait(), 0);
  out_ = run;
  for (int attempt = 0; attempt < 3; ++attempt) {  // in the middle of a step, unless it is just over
    std::vector<std::string> all = arguments(sets);
    if (attempt > 0) all.push_back("--resume");
    const std::size_t before = steps();
    Program program(all);
    while (program.running() && steps() <= before) std::this_thread::sleep_for(1ms);
    std::this_thread::sleep_for(30ms);
    program.signal(SIGTERM);
    program.wait();
  }
  std::vector<std::string> all = arguments(sets);
  all.push_back("--resume");
  ASSERT_EQ(Program(all).wait(), 0);
  EXPECT_EQ(trajectory(out_), trajectory(whole));
  for (const char* file : {"model.safetensors", "optimizer.safetensors"})
    EXPECT_EQ(contents_of(out_ + "/checkpoints/step-00000004/" + file),
              contents_of(whole + "/checkpoints/step-00000004/" + file));
}

TEST_F(Outside, AShardCutShortIsNamedAndTheRunSaved) {
  const std::string bytes = contents_of(shard());
  EXPECT_EQ(harmed([&](Program&) { fs::resize_file(shard(), 2000); }), 2);
  EXPECT_TRUE(contains(printed(), shard() + ": changed") && contains(printed(), "--resume")) << printed();
  const auto saved = latest_valid_checkpoint(out_ + "/checkpoints");
  ASSERT_TRUE(saved);
  EXPECT_EQ(saved->step, records(out_, "step").back()["step"].get<Index>());
  std::ofstream(shard(), std::ios::binary) << bytes;  // with the old file the run goes on
  EXPECT_EQ(
      Program({"train", "--out", out_, "--resume", "--set", fmt::format("train.steps={}", saved->step + 2)})
          .wait(),
      0);
}

// Validation looks at the average of the weights. Where it fails, what is saved is the weights that learn.
TEST_F(Outside, AnErrorWhileValidatingSavesTheWeightsThatLearn) {
  const std::vector<std::string> sets = {"train.steps=500", "train.ema=0.9"};
  const std::string run = out_;
  out_ = run + "-whole";
  ASSERT_EQ(harmed([](Program&) {}, sets), 0) << printed();
  const std::string whole = out_ + "/checkpoints/step-00000500/";
  out_ = run;
  EXPECT_EQ(harmed([&](Program&) { fs::resize_file(shard("_val_"), 1100); }, sets), 2);
  EXPECT_TRUE(contains(printed(), "changed")) << printed();
  const auto saved = latest_valid_checkpoint(out_ + "/checkpoints");
  ASSERT_TRUE(saved);
  ASSERT_EQ(saved->step, 500);
  for (const char* file : {"model.safetensors", "average.safetensors"})
    EXPECT_TRUE(contents_of(saved->folder + "/" + file) == contents_of(whole + file)) << file;
}

TEST_F(Outside, AShardWrittenOverIsNamedAndTheRunSaved) {
  const std::size_t size = fs::file_size(shard());
  const auto write_over = [&](Program&) {
    const int file = ::open(shard().c_str(), O_WRONLY | O_CLOEXEC);
    const std::string ones(size - 1024, '\xff');
    EXPECT_EQ(::pwrite(file, ones.data(), ones.size(), 1024), static_cast<ssize_t>(ones.size()));
    ::close(file);
  };
  EXPECT_EQ(harmed(write_over), 2);
  EXPECT_TRUE(contains(printed(), shard() + ": changed") && !contains(printed(), "bug")) << printed();
  EXPECT_EQ(latest_valid_checkpoint(out_ + "/checkpoints")->step,
            records(out_, "step").back()["step"].get<Index>());
}

TEST_F(Outside, AFolderThatIsRemovedIsAnError) {
  EXPECT_EQ(harmed([&](Program&) { fs::remove_all(out_); }, {"train.steps=400"}), 2);
  EXPECT_TRUE(contains(printed(), out_)) << printed();
}

TEST_F(Outside, AFolderThatIsReplacedIsAnError) {
  const auto replace = [&](Program& program) {
    fs::rename(out_, out_ + "-moved");
    fs::create_directories(out_ + "/checkpoints");
    program.signal(SIGTERM);
  };
  EXPECT_EQ(harmed(replace), 2);
  EXPECT_TRUE(contains(printed(), "removed while it trained")) << printed();
}

TEST_F(Outside, NamesThatAreNotUtf8Resume) {
  const std::string odd = folder_ / "\xff\xfe 100%";
  fs::rename(data_, odd);
  data_ = odd;
  out_ = folder_ / "run\xff";
  ASSERT_EQ(Program(arguments({"train.steps=2"})).wait(), 0);
  EXPECT_EQ(Program({"train", "--out", out_, "--resume", "--set", "train.steps=4"}).wait(), 0);
  EXPECT_EQ(records(out_, "step").size(), 4u);
}

// Members of trainer.json of another type, or that cannot be, with a manifest that agrees.
TEST_F(Outside, ATrainerFileThatCannotBeIsNamed) {
  ASSERT_EQ(Program(arguments({"train.steps=2"})).wait(), 0);
  const std::string checkpoint = out_ + "/checkpoints/step-00000002/", path = checkpoint + "trainer.json";
  const std::string whole = contents_of(path), manifest = contents_of(checkpoint + "manifest.json");
  const auto refusal = [&](const std::function<void(Json&)>& change) {
    Json json = parse_json(whole), listed = parse_json(manifest);
    change(json);
    const std::string text = to_text(json);
    std::ofstream(path, std::ios::binary) << text;
    listed["files"]["trainer.json"] = Json{{"bytes", text.size()}, {"sha256", sha256_hex(text)}};
    std::ofstream(checkpoint + "manifest.json", std::ios::binary) << to_text(listed);
    std::ofstream(printed_, std::ios::binary) << "";
    const int output = open_printed();
    Program program({"train", "--out", out_, "--resume", "--set", "train.steps=4"}, output);
    ::close(output);
    EXPECT_EQ(program.wait(), 2) << printed();
    EXPECT_FALSE(contains(printed(), "json.exception")) << printed();
    return printed();
  };
  const auto expect = [&](const char* member, const std::function<void(Json&)>& change) {
    const std::string said = refusal(change);
    EXPECT_TRUE(contains(said, path) && contains(said, member)) << said;
  };
  expect("'updates' is -1", [](Json& j) { j["updates"] = -1; });
  expect("'updates' is 1e+300", [](Json& j) { j["updates"] = 1e300; });
  expect("'updates' is missing", [](Json& j) { j.erase("updates"); });
  expect("'loader.order' is missing", [](Json& j) { j["loader"].erase("order"); });
  expect("'progress.step'", [](Json& j) { j["progress"]["step"] = "two"; });
  expect("'progress.last_validation'", [](Json& j) { j["progress"]["last_validation"] = 3; });
  expect("'config.train'", [](Json& j) { j["config"] = Json{{"train", Json::array()}}; });
  expect("format", [](Json& j) { j.erase("format"); });
  expect("trainer.json", [](Json& j) { j["format"] = 7; });
  expect("JSON object", [](Json& j) { j = 7; });
}

}  // namespace
}  // namespace ddl
