// The learning-rate range test, early stopping, samples, and what is said before training starts.
#include "train/find_lr.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "core/error.h"
#include "program.h"
#include "small_run.h"

namespace ddl {
namespace {

// A loss that falls as 1e-3 is passed, is lowest at 1e-2 and rises steeply after it.
TEST(FindLr, SuggestsTheSteepestFall) {
  FindLrResult result;
  for (double e = -6; e <= -1; e += 0.05) {
    const double loss = 6 - 2 / (1 + std::exp(-6 * (e + 3))) + std::exp(8 * (e + 1.7));
    result.points.push_back({std::pow(10, e), loss, loss});
  }
  suggest_rate(result);
  EXPECT_GE(result.suggested, 5e-4);
  EXPECT_LE(result.suggested, 2e-3);
  EXPECT_GT(result.lowest_lr, 3e-3);
  EXPECT_TRUE(contains(result.screen(), "Try --set train.lr=0.00")) << result.screen();
  for (auto& point : result.points) point.smooth = 6 + point.lr;
  suggest_rate(result);
  EXPECT_EQ(result.suggested, 0);
  EXPECT_TRUE(contains(result.screen(), "did not fall"));
}

TEST(FindLr, TriesGrowingRatesAndEndsWhereTheLossLeaves) {
  const TestFolder folder;
  RunRequest request = small_request(make_data(folder), "");
  std::vector<double> rates;
  const StopSignals signals;
  const auto heard = [&](Index, const FindLrResult::Point& point) { rates.push_back(point.lr); };
  const FindLrResult result =
      find_learning_rate(request, {.steps = 60, .high = 100}, heard, signals, kOneThread);
  EXPECT_EQ(rates.size(), result.points.size());
  EXPECT_DOUBLE_EQ(rates[0], 1e-6);
  for (std::size_t i = 1; i < rates.size(); ++i) EXPECT_GT(rates[i], rates[i - 1]);
  EXPECT_TRUE(result.diverged);
  EXPECT_LT(result.points.size(), 60u);
  request.out = folder / "run";
  EXPECT_TRUE(contains(
      message_of<UserError>([&] { find_learning_rate(request, {}, heard, signals, kOneThread); }), "--out"));
}

// A rate of 0 learns nothing: no validation after the first is better.
TEST(Patience, EndsARunThatNoLongerImproves) {
  const TestFolder folder;
  const std::string out = folder / "run", data = make_data(folder);
  RunRequest request = small_request(
      data, out, {"train.steps=40", "train.lr=0", "train.patience=3", "checkpoint.every_steps=0"});
  EXPECT_EQ(run(request).step, 8);  // validated at 2 (best), 4, 6, 8
  const Json done = records(out, "done").back();
  EXPECT_EQ(done["stopped_early"], true);
  EXPECT_TRUE(contains(done["message"].get<std::string>(), "no new best in 3 validations"));
  // Resumed, it is still at its end; with more patience it continues.
  EXPECT_EQ(run(resume_request(out)).step, 8);
  EXPECT_EQ(run(resume_request(out, {"train.patience=4"})).step, 10);
  EXPECT_TRUE(contains(message_of<UserError>([&] {
                         run(small_request(data, folder / "other", {"train.patience=3", "eval.every=0"}));
                       }),
                       "eval.every"));
}

TEST(Samples, AreAskedForAtIntervals) {
  const TestFolder folder;
  RunRequest request = small_request(make_data(folder), folder / "run",
                                     {"train.steps=5", "log.sample_every=2", "log.sample_prompt=\"a=1 \""});
  request.sample = [](const Weights& weights, const Tokenizer& tokenizer, const std::string& prompt,
                      const Exec&) {
    return fmt::format("{}{} of {}", prompt, weights.config().width, tokenizer.name());
  };
  run(request);
  const auto samples = records(folder / "run", "sample");
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_EQ(samples[1]["step"], 4);
  EXPECT_EQ(samples[1]["prompt"], "a=1 ");
  EXPECT_TRUE(contains(samples[1]["text"].get<std::string>(), "a=1 32 of bytes"));
}

TEST(Start, SaysHowMuchWorkItIs) {
  const TestFolder folder;
  RunRequest request = small_request(make_data(folder), folder / "run", {"train.steps=3", "log.floor=true"});
  request.style = Console::Style::kPlain;
  testing::internal::CaptureStdout();
  run(request);
  const std::string shown = testing::internal::GetCapturedStdout();
  EXPECT_TRUE(contains(shown, "\n3 steps of 192 tokens, ")) << shown;
  EXPECT_TRUE(contains(shown, " passes over the data, about ")) << shown;
  EXPECT_EQ(format_duration(840), "14 min");
  EXPECT_EQ(format_duration(0.2), "1 s");
  EXPECT_EQ(format_duration(3 * 86400), "3 days");
}

TEST(Start, ColourOnATerminalUnlessForbidden) {
  const TestFolder folder;
  std::vector<std::string> arguments = {"train", "--data", make_data(folder), "--out", folder / "run"};
  for (const std::string& set : small_sets({"train.steps=2"}))
    arguments.push_back("--set"), arguments.push_back(set);
  ::setenv("TERM", "xterm", 1);
  ::setenv("NO_COLOR", "1", 1);
  const std::string plain = shown_on_terminal(arguments, 100);
  EXPECT_TRUE(contains(plain, "(best)") && !contains(plain, "\033[32m")) << plain;
  ::unsetenv("NO_COLOR");
  arguments[4] = folder / "other";
  EXPECT_TRUE(contains(shown_on_terminal(arguments, 100), "\033[32m (best)\033[0m"));
}

}  // namespace
}  // namespace ddl
