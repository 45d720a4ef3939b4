// Scores against the oracle and against the model's own loss. A score depends on its request alone.
#include "eval/scorer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>

#include "dist/threads_comm.h"
#include "eval/request_tree.h"
#include "model/oracle_model.h"
#include "model/residual/example_rule.h"

namespace ddl {
namespace {

using Ids = std::vector<std::int32_t>;

Ids joined(Ids a, const Ids& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Like an evaluation: a few prompts, behind each several contexts, behind each several continuations, some of
// which begin alike or are part of one another.
std::vector<ScoreRequest> questions(Index count, Index longest, Index vocab) {
  std::vector<ScoreRequest> requests;
  const Random random(5, "questions");
  std::uint64_t draws = 0;
  const auto below = [&](Index n) {
    return static_cast<Index>(random.below(draws++, static_cast<std::uint64_t>(n)));
  };
  for (Index i = 0; i < count; ++i) {
    const Ids prompt = tokens(1 + longest / 4, 100 + static_cast<std::uint64_t>(below(3)), vocab);
    const Ids context = joined(prompt, tokens(1 + below(longest / 3), 200 + draws, vocab));
    const Ids answer = tokens(1 + below(longest / 3), 300 + draws, vocab);
    for (Index choice = 0; choice < 4; ++choice) {
      const Index shared = below(std::ssize(answer) + 1);
      Ids own(answer.begin(), answer.begin() + shared);
      own = joined(own, tokens(1 + below(4), 400 + draws, vocab));
      requests.push_back({context, own});
    }
  }
  return requests;
}

// A model whose shapes take the library's usual paths, and that needs several passes.
ModelConfig wide_config(const std::string& residual) {
  ModelConfig m = model_config({.residual = residual});
  m.width = 48, m.heads = 2, m.mlp = 0, m.vocab = 419, m.context = 40;
  return m;
}

// Starting values, moved off every special point (a compressor that starts by looking at one token alone
// would hide a wrong past), yet tame enough that rounding stays rounding.
void move(Weights& weights) {
  for (const Param& p : weights.table().list()) {
    const Random random(7, p.name);
    for (Index i = 0; i < p.count; ++i)
      weights.values()[p.offset + i] +=
          static_cast<float>(0.1 * random.normal(static_cast<std::uint64_t>(i)));
  }
  weights.update_copy(Exec{});
}
Weights tame(const ModelConfig& config) {
  Weights weights(config, 3, Exec{});
  move(weights);
  return weights;
}

std::vector<double> values(const std::vector<Score>& scores) {
  std::vector<double> out;
  for (const Score& s : scores) out.push_back(s.log_likelihood);
  return out;
}

class EveryRule : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Scorer, EveryRule, testing::ValuesIn(rule_names()), rule_test_name);

// The sequence a request stands for, cut on the left as the harness cuts it.
Ids kept(const ScoreRequest& r, Index context) {
  Ids all = joined(r.context, r.continuation);
  if (std::ssize(all) > context + 1) all.erase(all.begin(), all.end() - (context + 1));
  return all;
}

// log p of the continuation by the oracle's logits, and whether each token was the most likely.
Score by_oracle(const ModelConfig& config, const ref::Parameters<double>& parameters, const ScoreRequest& r,
                Index context, Index vocab) {
  const Ids all = kept(r, context);
  const Index n = std::ssize(all) - 1;
  const auto logits = oracle_logits(config, parameters, Ids(all.begin(), all.end() - 1), 1, n);
  Score score{0, true};
  for (Index t = n - std::ssize(r.continuation); t < n; ++t) {
    const std::vector<double> z(logits.begin() + t * vocab, logits.begin() + (t + 1) * vocab);
    score.log_likelihood += z[all[t + 1]] - ref::logsumexp(z, 1, vocab)[0];
    score.greedy = score.greedy && std::max_element(z.begin(), z.end()) - z.begin() == all[t + 1];
  }
  return score;
}

// The tokens the oracle finds most likely after a context, one after another.
Ids most_likely(const ModelConfig& config, const ref::Parameters<double>& parameters, Ids context, Index n,
                Index vocab) {
  Ids out;
  for (; n > 0; --n) {
    const Index T = std::ssize(context);
    const auto logits = oracle_logits(config, parameters, context, 1, T);
    const auto last = logits.end() - vocab;
    out.push_back(static_cast<std::int32_t>(std::max_element(last, logits.end()) - last));
    context.push_back(out.back());
  }
  return out;
}

// Sequences shorter than, as long as and longer than the context of 16; one whose continuation fills it.
TEST_P(EveryRule, ScoresAreTheOracles) {
  for (const char* gate : {"linear", "two-layer"}) {
    const Case c{.residual = GetParam(), .gate = gate, .mup = true};
    const ModelConfig config = model_config(c);
    const Weights weights = scrambled_weights(config);
    const auto parameters = oracle_parameters(weights), moved_parameters = nudged(parameters);
    auto requests = questions(4, 20, config.vocab);
    requests.push_back({tokens(30, 1), tokens(4, 2)});
    requests.push_back({tokens(30, 1), tokens(16, 2)});
    requests.push_back({tokens(1, 1), tokens(16, 2)});
    const Ids context = tokens(5, 3), best = most_likely(config, parameters, context, 2, config.vocab);
    requests.push_back({context, best});
    requests.push_back({context, {best[0], (best[1] + 1) % 11}});

    Scorer scorer(weights, {}, Exec{.threads = 2});
    const auto scores = scorer.score_all(requests);
    std::vector<double> expected, moved, cut_early;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const auto truth = [&](const auto& numbers, Index longest) {
        return by_oracle(config, numbers, requests[i], longest, config.vocab);
      };
      const Score score = truth(parameters, config.context);
      expected.push_back(score.log_likelihood);
      moved.push_back(truth(moved_parameters, config.context).log_likelihood);
      const bool fills = std::ssize(requests[i].continuation) == config.context;
      cut_early.push_back(fills ? expected.back() : truth(parameters, config.context - 1).log_likelihood);
      EXPECT_EQ(scores[i].greedy, score.greedy) << i;
    }
    const double allowed = amplification(expected, moved);
    const Index steps = roundings(config, config.context);
    EXPECT_LT(rounding_ratio(values(scores), expected, steps) / allowed, 1) << gate;
    EXPECT_GT(rounding_ratio(values(scores), cut_early, steps) / allowed, 1) << "one token less is kept";
    EXPECT_TRUE(scores[scores.size() - 2].greedy);
    EXPECT_FALSE(scores[scores.size() - 1].greedy) << "only its first token is the most likely";
  }
}

// The plain forward pass of training, one sequence at a time.
TEST_P(EveryRule, ScoresAreTheModelsOwnLosses) {
  const ModelConfig config = wide_config(GetParam());
  const Weights weights = tame(config);
  const auto requests = questions(6, config.context, config.vocab);
  Scorer scorer(weights, {}, Exec{.threads = 2});
  const auto scores = scorer.score_all(requests);
  std::vector<double> expected;
  for (const ScoreRequest& r : requests) {
    const Ids all = kept(r, config.context);
    const Index n = std::ssize(all) - 1;
    const auto whole = trainable(config, {1, n}, 3);
    move(whole->weights());
    whole->upload(Exec{});
    std::vector<float> loss(static_cast<std::size_t>(n));
    whole->loss({all.data(), all.data() + 1}, {loss.data(), nullptr}, Exec{});
    double sum = 0;
    for (Index t = n - std::ssize(r.continuation); t < n; ++t) sum -= loss[t];
    expected.push_back(sum);
  }
  EXPECT_LT(rounding_ratio(values(scores), expected, roundings(config, config.context)), 1);
  std::rotate(expected.begin(), expected.begin() + 1, expected.end());
  EXPECT_GT(rounding_ratio(values(scores), expected, roundings(config, config.context)), 1);
}

bool same_bits(const std::vector<Score>& a, const std::vector<Score>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Score& x, const Score& y) {
    return x.log_likelihood == y.log_likelihood && x.greedy == y.greedy;
  });
}

// Passes of 96 to 960 tokens, any number of threads, any order, alone or together: the same bits.
void check_bits(const ModelConfig& config) {
  const Weights weights = tame(config);
  const auto requests = questions(16, config.context, config.vocab);
  std::vector<Score> truth;
  {
    Scorer scorer(weights, {.batch_tokens = 960}, Exec{.threads = 2});
    truth = scorer.score_all(requests);
    EXPECT_GT(scorer.cost().tokens, 300) << "several passes are needed below";
  }
  for (const auto& [batch_tokens, threads] : {std::pair<Index, int>{1, 1}, {1, 2}, {192, 1}, {192, 3}}) {
    Scorer scorer(weights, {.batch_tokens = batch_tokens}, Exec{.threads = threads});
    EXPECT_TRUE(same_bits(scorer.score_all(requests), truth)) << batch_tokens << " at a time, " << threads;
  }
  std::vector<std::size_t> order(requests.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  const Random random(1, "order");
  std::sort(order.begin(), order.end(), [&](auto a, auto b) { return random.bits(a) < random.bits(b); });
  std::vector<ScoreRequest> shuffled;
  std::vector<Score> shuffled_truth;
  for (const std::size_t i : order) shuffled.push_back(requests[i]), shuffled_truth.push_back(truth[i]);
  Scorer scorer(weights, {.batch_tokens = 96}, Exec{.threads = 2});
  EXPECT_TRUE(same_bits(scorer.score_all(shuffled), shuffled_truth));
  for (std::size_t i = 0; i < requests.size(); i += 7)
    EXPECT_TRUE(same_bits(scorer.score_all({&requests[i], 1}), {truth[i]})) << "alone: " << i;
}

TEST_P(EveryRule, BitsDependOnTheRequestAlone) { check_bits(wide_config(GetParam())); }
TEST(Scorer, BitsDependOnTheRequestAloneWithATwoLayerGate) {
  ModelConfig config = wide_config("ddl-tc");
  config.set("model.gate=two-layer");
  check_bits(config);
}
TEST(Scorer, BitsDependOnTheRequestAloneInBf16) {
  ModelConfig config = wide_config("ddl-cc");
  config.precision = Precision::kBf16;
  check_bits(config);
}
TEST(Scorer, BitsDependOnTheRequestAloneWithARuleOfOnesOwn) {
  register_example_rule();
  check_bits(wide_config("example-strength"));
}

// The comparison has power: dropping a continuation's last token, or a context's first, changes the bits.
TEST(Scorer, OtherRequestsHaveOtherBits) {
  const ModelConfig config = wide_config("ddl-cc");
  const Weights weights = tame(config);
  Scorer scorer(weights, {}, Exec{});
  const Ids context = tokens(9, 1, config.vocab), continuation = tokens(4, 2, config.vocab);
  const std::vector<ScoreRequest> requests = {{context, continuation},
                                              {context, {continuation.begin(), continuation.end() - 1}},
                                              {{context.begin() + 1, context.end()}, continuation}};
  const auto scores = scorer.score_all(requests);
  EXPECT_NE(scores[0].log_likelihood, scores[1].log_likelihood);
  EXPECT_NE(scores[0].log_likelihood, scores[2].log_likelihood);
}

// Each distinct beginning is computed once, and a token's logits only where something is asked of them.
TEST(Scorer, ComputesWhatIsSharedOnce) {
  const ModelConfig config = wide_config("ddl-cc");
  const Weights weights = tame(config);
  const auto requests = questions(40, config.context, config.vocab);
  std::set<Ids> distinct, asked;
  for (const ScoreRequest& r : requests) {
    const Ids all = kept(r, config.context);
    for (auto end = all.begin() + 1; end != all.end(); ++end) {
      distinct.emplace(all.begin(), end);
      if (all.end() - end <= std::ssize(r.continuation)) asked.emplace(all.begin(), end);
    }
  }
  Scorer scorer(weights, {}, Exec{});
  scorer.score_all(requests);
  EXPECT_EQ(scorer.cost().tokens, std::ssize(distinct));
  EXPECT_EQ(scorer.cost().logits, std::ssize(asked));
  EXPECT_EQ(scorer.cost().requests, std::ssize(requests));
}

// A comb: a branch at every token, deeper than runs may lie. Sharing ends there, the scores do not change.
TEST(Scorer, TreesOfAnyDepth) {
  ModelConfig config = wide_config("ddl-tc");
  const Weights weights = tame(config);
  const Ids spine = tokens(config.context, 1, config.vocab);
  std::vector<ScoreRequest> requests;
  for (Index n = 1; n < std::ssize(spine); ++n)
    for (std::int32_t tooth : {5, 6})
      requests.push_back({{spine.begin(), spine.begin() + n}, {tooth, tooth}});
  Scorer together(weights, {.batch_tokens = 96}, Exec{}), alone(weights, {}, Exec{});
  const auto scores = together.score_all(requests);
  for (std::size_t i = 0; i < requests.size(); ++i)
    EXPECT_TRUE(same_bits(alone.score_all({&requests[i], 1}), {scores[i]})) << i;
}

// Ranks share the requests out; the scores are those of one rank, to the last bit.
TEST(Scorer, RanksScoreAsOneDoes) {
  const ModelConfig config = wide_config("ddl-cc");
  const Weights weights = tame(config);
  auto requests = questions(9, 20, config.vocab);
  // Every token after one context: one of them is the most likely.
  for (std::int32_t token = 0; token < config.vocab; ++token) requests.push_back({{1, 2, 3}, {token}});
  const std::vector<Score> alone = Scorer(weights, {}, Exec{}).score_all(requests);
  ASSERT_GT(std::count_if(alone.begin(), alone.end(), [](const Score& s) { return s.greedy; }), 0);
  for (const int ranks : {2, 3}) {
    std::vector<Score> together;
    std::vector<Index> tokens(static_cast<std::size_t>(ranks));
    const auto thrown = ThreadRanks(ranks).run([&](Comm& comm) {
      Scorer scorer(weights, {}, Exec{}, comm);
      if (comm.leads()) {
        together = scorer.score_all(requests);
        EXPECT_EQ(values(scorer.score_all({})), values({}));
      } else {
        scorer.serve();
      }
      tokens[static_cast<std::size_t>(comm.rank())] = scorer.cost().tokens;
      EXPECT_GT(scorer.cost().tokens, 0) << "every rank has its part";
    });
    for (const auto& error : thrown) EXPECT_FALSE(error);
    EXPECT_EQ(values(together), values(alone));
    for (std::size_t i = 0; i < alone.size(); ++i) EXPECT_EQ(together[i].greedy, alone[i].greedy);
  }
}

TEST(Scorer, HandsOutEachScoreOnce) {
  const ModelConfig config = wide_config("baseline");
  const Weights weights = tame(config);
  auto requests = questions(10, config.context, config.vocab);
  requests.push_back(requests[3]);                       // asked twice
  requests.push_back({tokens(3, 1, config.vocab), {}});  // nothing to score: certain
  Scorer scorer(weights, {}, Exec{});
  std::vector<Index> times(requests.size(), 0);
  std::vector<Score> scores(requests.size());
  scorer.score(requests, [&](Index i, const Score& s) { ++times[i], scores[i] = s; });
  EXPECT_EQ(times, std::vector<Index>(requests.size(), 1));
  Index last = 0;
  EXPECT_TRUE(same_bits(scorer.score_all(requests, [&](Index done) { EXPECT_EQ(done, ++last); }), scores));
  EXPECT_EQ(last, std::ssize(requests));
  EXPECT_TRUE(same_bits({scores[3]}, {scores[scores.size() - 2]}));
  EXPECT_TRUE(same_bits({scores.back()}, {Score{0, true}}));
  EXPECT_TRUE(scorer.score_all({}).empty());
}

TEST(Scorer, RefusesWhatCannotBeScored) {
  const ModelConfig config = wide_config("baseline");
  const Weights weights = tame(config);
  Scorer scorer(weights, {}, Exec{});
  const auto error = [&](const ScoreRequest& r) -> std::string {
    try {
      scorer.score_all({&r, 1});
    } catch (const UserError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(error({{1}, Ids(40, 2)}), "");
  EXPECT_NE(error({{1}, Ids(41, 2)}).find("a continuation of 41 tokens"), std::string::npos);
  EXPECT_NE(error({{1, 419}, {2, 3}}).find("token 419 is not in the model's vocabulary of 419"),
            std::string::npos);
  EXPECT_NE(error({{1}, {2, 419}}).find("token 419"), std::string::npos)
      << "the last token is only asked for";
  EXPECT_EQ(error({{1}, {2, 3}}), "") << "the scorer still works";
  EXPECT_THROW(Scorer(weights, {.batch_tokens = 0}, Exec{}), UserError);
}

// --- the tree

// (depth, position, tokens, first wanted) of every run
struct Piece {
  Index depth, position;
  Ids tokens;
  Index first_wanted;
  bool operator==(const Piece&) const = default;
};
std::vector<Piece> branches(const RequestTree& tree) {
  std::vector<Piece> out;
  for (const TreeRun& r : tree.runs())
    out.push_back({r.depth, r.position, {r.tokens.begin(), r.tokens.end()}, r.first_wanted});
  return out;
}

TEST(RequestTree, BranchesWhereRequestsDo) {
  const std::vector<ScoreRequest> requests = {
      {{1, 2, 3}, {4, 5}}, {{1, 2, 3}, {6}}, {{1, 2, 3}, {4, 7, 8}}, {{1, 9}, {2, 2}}};
  const RequestTree tree(requests, 16, 4);
  EXPECT_EQ(branches(tree),
            (std::vector<Piece>{
                {0, 0, {1}, 1}, {1, 1, {2, 3}, 1}, {2, 3, {4}, 0}, {3, 4, {7}, 0}, {1, 1, {9, 2}, 0}}));
  EXPECT_EQ(tree.tokens(), 7);
  std::vector<std::pair<Index, std::int32_t>> asked;
  const auto ask = [&](const RequestTree::Asked& a) { asked.emplace_back(a.request, a.token); };
  tree.for_each_asked(1, 1, ask);  // what follows 1 2 3?
  std::sort(asked.begin(), asked.end());
  EXPECT_EQ(asked, (std::vector<std::pair<Index, std::int32_t>>{{0, 4}, {1, 6}, {2, 4}}));
}

// The harness keeps the last L + 1 tokens and feeds all but the last.
TEST(RequestTree, CutsOnTheLeft) {
  const std::vector<ScoreRequest> requests = {{{1, 2, 3, 4, 5, 6}, {7, 8}}};
  EXPECT_EQ(branches(RequestTree(requests, 4, 4)), (std::vector<Piece>{{0, 0, {4, 5, 6, 7}, 2}}));
  EXPECT_EQ(branches(RequestTree(requests, 2, 4)), (std::vector<Piece>{{0, 0, {6, 7}, 0}}));
  EXPECT_EQ(branches(RequestTree(requests, 7, 4)), (std::vector<Piece>{{0, 0, {1, 2, 3, 4, 5, 6, 7}, 5}}));
  EXPECT_THROW(RequestTree(requests, 1, 4), UserError);
}

TEST(RequestTree, SharesNothingBelowItsDepth) {
  const std::vector<ScoreRequest> requests = {
      {{1}, {2, 3, 4}}, {{1}, {2, 3, 5}}, {{1}, {2, 6}}, {{1}, {7, 7}}};
  EXPECT_EQ(branches(RequestTree(requests, 16, 2)),
            (std::vector<Piece>{
                {0, 0, {1}, 0}, {1, 1, {2}, 0}, {1, 1, {2, 3}, 0}, {1, 1, {2, 3}, 0}, {1, 1, {7}, 0}}));
}

}  // namespace
}  // namespace ddl
