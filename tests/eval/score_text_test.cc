// Tokens one by one: against the scorer of requests, against the definition of rank, and across windows.
#include "eval/score_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "eval/rolling_windows.h"
#include "eval/scorer.h"
#include "infer/trace.h"
#include "model/oracle_model.h"
#include "test_folder.h"

namespace ddl {
namespace {

// Of log-probabilities, gates and targets of this model of 4 sublayers of 8 features: f32 against double.
constexpr double kClose = 1e-4;

struct ScoreText : ::testing::Test {
  ModelConfig config = model_config({.residual = "ddl-cc"});
  Weights weights = scrambled_weights(config);

  std::vector<ScoredToken> score(const std::vector<std::int32_t>& ids, ScoreTextOptions options = {}) {
    std::vector<ScoredToken> all;
    score_text(
        weights, ids, options, [&](const ScoredToken& token) { all.push_back(token); }, Exec{});
    return all;
  }
};

TEST_F(ScoreText, IsTheOraclesDistribution) {
  const std::vector<std::int32_t> ids = tokens(9, 4);
  const auto logits = oracle_logits(config, oracle_parameters(weights), ids, 1, 9);
  const std::vector<ScoredToken> all = score(ids, {.best = 4});
  ASSERT_EQ(all.size(), 8u);
  const Index V = config.vocab;
  for (Index n = 0; n < 8; ++n) {
    const std::vector<double> z(logits.begin() + n * V, logits.begin() + (n + 1) * V);
    const double lse = ref::logsumexp(z, 1, V)[0];
    const ScoredToken& token = all[n];
    EXPECT_EQ(token.token, ids[n + 1]);
    EXPECT_EQ(token.position, n + 1);
    EXPECT_NEAR(token.log_probability, z[token.token] - lse, kClose);
    EXPECT_EQ(token.rank,
              1 + std::count_if(z.begin(), z.end(), [&](double other) { return other > z[token.token]; }));
    std::vector<Index> order(static_cast<std::size_t>(V));
    for (Index v = 0; v < V; ++v) order[v] = v;
    std::sort(order.begin(), order.end(), [&](Index a, Index b) { return z[a] > z[b]; });
    ASSERT_EQ(token.best.size(), 4u);
    for (Index k = 0; k < 4; ++k) {
      EXPECT_EQ(token.best[k].token, order[k]) << n << " " << k;
      EXPECT_NEAR(token.best[k].log_probability, z[order[k]] - lse, kClose);
    }
  }
}

// Longer than the context of 16: as `ddl eval` would cut it, and the sum is the scorer's to the last bit.
TEST_F(ScoreText, LongTextsAreCutAsTheHarnessCutsThem) {
  const std::vector<std::int32_t> ids = tokens(41, 5);
  const std::vector<ScoredToken> all = score(ids);
  ASSERT_EQ(all.size(), 40u);
  std::vector<ScoreRequest> requests;
  RollingWindows windows(ids[0], config.context);
  const auto keep = [&](ScoreRequest request) { requests.push_back(std::move(request)); };
  for (std::size_t i = 1; i < ids.size(); ++i) windows.add(ids[i], keep);
  windows.finish(keep);
  ASSERT_EQ(requests.size(), 3u);
  Scorer scorer(weights, {}, Exec{});
  const std::vector<Score> expected = scorer.score_all(requests);
  std::size_t at = 0;
  for (std::size_t r = 0; r < requests.size(); ++r) {
    double sum = 0;
    for (std::size_t i = 0; i < requests[r].continuation.size(); ++i) sum += all[at++].log_probability;
    EXPECT_EQ(sum, expected[r].log_likelihood);
  }
  EXPECT_EQ(at, all.size());
}

TEST_F(ScoreText, EqualLogitsAreRankedByTheVocabulary) {
  const std::vector<float> logits = {1, 3, 3, 2};
  const NextToken next{.logits_V = logits, .largest = 3};
  EXPECT_EQ(rank_of(next, 1), 1);
  EXPECT_EQ(rank_of(next, 2), 2);
  EXPECT_EQ(rank_of(next, 3), 3);
  EXPECT_EQ(rank_of(next, 0), 4);
  const std::vector<LikelyToken> best = most_likely(next, 9);
  ASSERT_EQ(best.size(), 4u);
  EXPECT_EQ(most_likely(logits, 2), (std::vector<std::int32_t>{1, 2}));
  EXPECT_EQ(most_likely(logits, 3), (std::vector<std::int32_t>{1, 2, 3}));
  EXPECT_TRUE(most_likely(logits, 0).empty());
  EXPECT_EQ(best[0].token, 1);
  EXPECT_EQ(best[1].token, 2);
  EXPECT_EQ(best[3].token, 0);
}

// The oracle's gates; of the position that predicts the token.
TEST_F(ScoreText, GatesAreTheOracles) {
  const std::vector<std::int32_t> ids = tokens(9, 4);
  const auto parameters = oracle_parameters(weights);
  const auto oracle = make_oracle<double>(config);
  const ref::Shape shape = oracle_shape(config);
  ref::Trace<double> truth;
  ref::Model<double>(shape, *oracle, parameters).logits({ids.begin(), ids.end()}, 1, 9, &truth);
  const std::vector<ScoredToken> all = score(ids, {.gates = true});
  for (Index n = 0; n < 8; ++n) {
    ASSERT_EQ(all[n].gates.size(), 1u);
    EXPECT_EQ(all[n].gates[0].name, "gate");
    ASSERT_EQ(std::ssize(all[n].gates[0].value_S), config.sublayers());
    for (Index s = 0; s < config.sublayers(); ++s)
      EXPECT_NEAR(all[n].gates[0].value_S[s], truth.sublayers[s].beta_N[n], kClose) << n << " " << s;
  }
  const Trace trace = trace_tokens(weights, ids, Exec{});
  EXPECT_EQ(trace.tokens, 9);
  EXPECT_NEAR(trace.loss_N[0], -all[0].log_probability, kClose);
  EXPECT_EQ(trace.loss_N[8], 0) << "nothing follows it";
  for (const TraceSeries& series : trace.by_sublayer[1])
    for (Index i = 0; series.name == "target" && i < 9 * series.per_token; ++i)
      EXPECT_NEAR(series.value_NP[i], truth.sublayers[1].v_ND[i], kClose);
}

// A small format's gates are those of the numbers it stands for.
TEST_F(ScoreText, GatesOfSmallWeights) {
  const std::vector<std::int32_t> ids = tokens(20, 4);  // more than one window
  weights = to_format(weights, WeightFormat::kQ8, Exec{});
  const std::vector<ScoredToken> small = score(ids, {.gates = true}), without = score(ids);
  weights = to_format(weights, WeightFormat::kF32, Exec{});
  const std::vector<ScoredToken> plain = score(ids, {.gates = true});
  ASSERT_EQ(small.size(), plain.size());
  for (std::size_t n = 0; n < small.size(); ++n) {
    EXPECT_EQ(small[n].gates[0].value_S, plain[n].gates[0].value_S) << n;
    EXPECT_EQ(small[n].log_probability, without[n].log_probability) << "scored as it is stored";
  }
}

TEST_F(ScoreText, AnswersOddRequests) {
  const auto error = [&](const std::vector<std::int32_t>& ids, ScoreTextOptions options = {}) {
    return message_of<UserError>([&] { score(ids, options); });
  };
  EXPECT_NE(error({1}).find("at least two"), std::string::npos);
  EXPECT_NE(error({1, 11}).find("token 11 is not in the model's vocabulary of 11"), std::string::npos);
  EXPECT_NE(error({1, -1}).find("token -1"), std::string::npos);
  config = model_config({.residual = "baseline"});
  weights = scrambled_weights(config);
  EXPECT_NE(error({1, 2}, {.gates = true}).find("baseline has no gates"), std::string::npos);
  EXPECT_NE(
      message_of<UserError>([&] { trace_tokens(weights, tokens(17, 1), Exec{}); }).find("expected 1 to 16"),
      std::string::npos);
}

}  // namespace
}  // namespace ddl
