#include "infer/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "core/error.h"

namespace ddl {
namespace {

// How often each token comes, of n draws.
std::map<std::int32_t, double> shares(const SamplerOptions& options, const std::vector<float>& logits,
                                      const std::vector<std::int32_t>& history = {}, int n = 20000) {
  Sampler sampler(options, 0);
  std::map<std::int32_t, double> counts;
  for (int i = 0; i < n; ++i) counts[sampler.next(logits, history)] += 1.0 / n;
  return counts;
}

// Shares are within five standard deviations, sqrt(p (1-p) / n) <= 0.0036, of what they should be.
constexpr double kNear = 5 * 0.0036;

const std::vector<float> kLogits = {std::log(0.1f), std::log(0.4f), std::log(0.2f), std::log(0.3f)};

TEST(Sampler, DrawsByProbability) {
  const auto s = shares({.temperature = 1}, kLogits);
  EXPECT_NEAR(s.at(0), 0.1, kNear);
  EXPECT_NEAR(s.at(1), 0.4, kNear);
  EXPECT_NEAR(s.at(2), 0.2, kNear);
  EXPECT_NEAR(s.at(3), 0.3, kNear);
}

TEST(Sampler, TemperatureSharpensAndZeroIsGreedy) {
  const auto s = shares({.temperature = 0.5}, kLogits);  // squares: 1 16 4 9 of 30
  EXPECT_NEAR(s.at(1), 16.0 / 30, kNear);
  EXPECT_NEAR(s.at(0), 1.0 / 30, kNear);
  const auto greedy = shares({.temperature = 0}, kLogits, {}, 50);
  EXPECT_EQ(greedy.size(), 1u);
  EXPECT_EQ(greedy.count(1), 1u);
  EXPECT_EQ(Sampler({.temperature = 0}, 0).next(std::vector<float>{2, 5, 5}, {}), 1) << "of equals the first";
}

TEST(Sampler, TopKTopPMinPKeepWhatTheySay) {
  const auto k = shares({.temperature = 1, .top_k = 2}, kLogits);
  EXPECT_EQ(k.size(), 2u);
  EXPECT_NEAR(k.at(1), 4.0 / 7, kNear);
  EXPECT_NEAR(k.at(3), 3.0 / 7, kNear);
  const auto p = shares({.temperature = 1, .top_p = 0.65}, kLogits);  // 0.4 + 0.3 reaches it
  EXPECT_EQ(p.size(), 2u);
  EXPECT_NEAR(p.at(1), 4.0 / 7, kNear);
  EXPECT_EQ(shares({.temperature = 1, .top_p = 0.75}, kLogits).size(), 3u);
  EXPECT_EQ(shares({.temperature = 1, .top_p = 1e-9}, kLogits).size(), 1u) << "never nothing";
  const auto m = shares({.temperature = 1, .min_p = 0.4}, kLogits);  // 0.16 and up
  EXPECT_EQ(m.size(), 3u);
  EXPECT_EQ(m.count(0), 0u);
  EXPECT_EQ(shares({.temperature = 1, .top_k = 100}, kLogits).size(), 4u);
  EXPECT_EQ(shares({.temperature = 1, .top_k = 3, .top_p = 0.9, .min_p = 0.6}, kLogits).size(), 2u);
}

TEST(Sampler, RepetitionPenaltyPushesSeenTokensDownOnce) {
  const std::vector<float> logits = {2, 1.9f, -1, -1.1f};
  const SamplerOptions greedy{.temperature = 0, .repetition_penalty = 1.3};
  EXPECT_EQ(Sampler(greedy, 0).next(logits, {}), 0);
  EXPECT_EQ(Sampler(greedy, 0).next(logits, std::vector<std::int32_t>{0, 0, 99, -1}), 1);
  EXPECT_EQ(Sampler(greedy, 0).next(logits, std::vector<std::int32_t>{0, 1}), 0);
  const std::vector<float> negative = {-1, -1.1f};
  EXPECT_EQ(Sampler(greedy, 0).next(negative, std::vector<std::int32_t>{0}), 1);
}

TEST(Sampler, SameSeedSameTokensAndStreamsDiffer) {
  const auto draw = [](std::uint64_t seed, std::uint64_t stream) {
    Sampler sampler({.temperature = 1, .seed = seed}, stream);
    std::vector<std::int32_t> ids;
    for (int i = 0; i < 40; ++i) ids.push_back(sampler.next(kLogits, {}));
    return ids;
  };
  EXPECT_EQ(draw(1, 0), draw(1, 0));
  EXPECT_NE(draw(1, 0), draw(2, 0));
  EXPECT_NE(draw(1, 0), draw(1, 1));
}

TEST(Sampler, FiltersThatKeepAllChangeNothing) {
  for (const SamplerOptions& same :
       {SamplerOptions{.temperature = 1, .top_k = 4}, {.temperature = 1, .min_p = 1e-6}}) {
    Sampler a({.temperature = 1}, 0), b(same, 0);
    for (int i = 0; i < 100; ++i) EXPECT_EQ(a.next(kLogits, {}), b.next(kLogits, {}));
  }
}

TEST(Sampler, PenalisesWhatItHasChosen) {
  const std::vector<float> logits = {3, 2.5f, 2, -5};
  const auto greedy = [&](SamplerOptions options, int count) {
    options.temperature = 0;
    Sampler sampler(options, 0);
    std::vector<std::int32_t> ids;
    for (int i = 0; i < count; ++i) ids.push_back(sampler.next(logits, ids));
    return ids;
  };
  using Ids = std::vector<std::int32_t>;
  EXPECT_EQ(greedy({}, 3), (Ids{0, 0, 0}));
  // 3 2.5 2, then 2.3 2.5 2, then 2.3 1.8 2, and so on: the penalty comes once.
  EXPECT_EQ(greedy({.presence_penalty = 0.7}, 5), (Ids{0, 1, 0, 0, 0}));
  // Each choice costs 0.7: 3 | 2.5 | 2.3 | 2 | 1.8 of token 1 before 1.6 of token 0.
  EXPECT_EQ(greedy({.frequency_penalty = 0.7}, 5), (Ids{0, 1, 0, 2, 1}));
  EXPECT_EQ(greedy({.frequency_penalty = -1}, 3), (Ids{0, 0, 0}));
  EXPECT_EQ(greedy({.logit_bias = {{3, 9.0}, {0, -100.0}, {77, 5.0}, {-1, 5.0}}}, 2), (Ids{3, 3}));
  // The prompt is no choice.
  Sampler sampler({.temperature = 0, .frequency_penalty = 2, .presence_penalty = 2}, 0);
  EXPECT_EQ(sampler.next(logits, Ids{0, 0, 0}), 0);
}

TEST(Sampler, RefusesImpossibleOptionsAndLogits) {
  EXPECT_THROW(Sampler({.frequency_penalty = 2.1}, 0), UserError);
  EXPECT_THROW(Sampler({.presence_penalty = -2.1}, 0), UserError);
  EXPECT_THROW(Sampler({.logit_bias = {{1, 101.0}}}, 0), UserError);
  EXPECT_THROW(Sampler({.temperature = -1}, 0), UserError);
  EXPECT_THROW(Sampler({.top_k = -1}, 0), UserError);
  EXPECT_THROW(Sampler({.top_p = 0}, 0), UserError);
  EXPECT_THROW(Sampler({.top_p = 1.5}, 0), UserError);
  EXPECT_THROW(Sampler({.min_p = 2}, 0), UserError);
  EXPECT_THROW(Sampler({.repetition_penalty = 0}, 0), UserError);
  EXPECT_THROW(Sampler({}, 0).next(std::vector<float>{1, NAN}, {}), UserError);
  EXPECT_THROW(Sampler({}, 0).next(std::vector<float>{1, INFINITY}, {}), UserError);
}

}  // namespace
}  // namespace ddl
