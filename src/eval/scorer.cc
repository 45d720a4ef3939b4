#include "eval/scorer.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#include "core/clock.h"
#include "core/error.h"
#include "core/exec.h"
#include "core/index.h"
#include "eval/request_tree.h"
#include "model/engine.h"

namespace ddl {

namespace {

// That ranks share out before any of them is known: progress against sharing
constexpr Index kRequestsAtOnce = 2048;

// Requests as numbers, for the way to another rank.
std::string pack(std::span<const ScoreRequest> requests) {
  std::vector<std::int32_t> numbers;
  for (const ScoreRequest& r : requests) {
    numbers.push_back(static_cast<std::int32_t>(r.context.size()));
    numbers.push_back(static_cast<std::int32_t>(r.continuation.size()));
    numbers.insert(numbers.end(), r.context.begin(), r.context.end());
    numbers.insert(numbers.end(), r.continuation.begin(), r.continuation.end());
  }
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(std::int32_t)};
}

std::vector<ScoreRequest> unpack(const std::string& text) {
  std::vector<std::int32_t> numbers(text.size() / sizeof(std::int32_t));
  std::memcpy(numbers.data(), text.data(), text.size());
  std::vector<ScoreRequest> requests;
  for (auto at = numbers.begin(); at != numbers.end();) {
    const std::int32_t context = *at++, continuation = *at++;
    ScoreRequest& r = requests.emplace_back();
    r.context.assign(at, at + context), at += context;
    r.continuation.assign(at, at + continuation), at += continuation;
  }
  return requests;
}

// Where rank r's part begins: neighbours stay together, and every part has about as many tokens.
Index part_begin(std::span<const ScoreRequest> requests, int rank, int ranks) {
  if (rank == ranks) return std::ssize(requests);
  const auto length = [](const ScoreRequest& r) {
    return static_cast<Index>(r.context.size() + r.continuation.size());
  };
  Index all = 0, before = 0, begin = 0;
  for (const ScoreRequest& r : requests) all += length(r);
  while (begin < std::ssize(requests) && before * ranks < all * rank) before += length(requests[begin++]);
  return begin;
}

}  // namespace

Scorer::Scorer(const Weights& weights, ScorerOptions options, const Exec& ex, Comm& comm)
    : ex_(ex), comm_(comm), tree_(make_tree_scorer(weights, {.batch_tokens = options.batch_tokens}, ex)) {}

Scorer::~Scorer() {
  if (comm_.alone() || !comm_.leads()) return;
  try {
    comm_.broadcast_text("");
  } catch (const CommError&) {  // the others are gone already
  }
}

void Scorer::score(std::span<const ScoreRequest> requests, Scored scored) {
  if (comm_.alone()) return score_here(requests, scored);
  for (Index first = 0; first < std::ssize(requests); first += kRequestsAtOnce) {
    const auto some = requests.subspan(first, std::min(kRequestsAtOnce, std::ssize(requests) - first));
    comm_.broadcast_text(pack(some));
    const std::vector<Score> scores = score_together(some);
    for (Index i = 0; i < std::ssize(scores); ++i) scored(first + i, scores[i]);
  }
}

void Scorer::serve() {
  for (std::string text = comm_.broadcast_text(""); !text.empty(); text = comm_.broadcast_text(""))
    score_together(unpack(text));
}

// Every rank scores its part; the sums over ranks, to which the others add nothing, are the scores of all.
std::vector<Score> Scorer::score_together(std::span<const ScoreRequest> requests) {
  const Index begin = part_begin(requests, comm_.rank(), comm_.ranks()),
              end = part_begin(requests, comm_.rank() + 1, comm_.ranks());
  std::vector<double> numbers(2 * requests.size());
  score_here(requests.subspan(begin, end - begin), [&](Index request, const Score& score) {
    numbers[2 * (begin + request)] = score.log_likelihood;
    numbers[2 * (begin + request) + 1] = score.greedy;
  });
  comm_.sum(numbers);
  std::vector<Score> scores;
  for (std::size_t i = 0; i < requests.size(); ++i)
    scores.push_back({numbers[2 * i], numbers[2 * i + 1] != 0});
  return scores;
}

void Scorer::score_here(std::span<const ScoreRequest> requests, Scored scored) {
  const double start = now();
  const RequestTree tree(requests, config().context, tree_->shape().depths);
  // The last tokens do not go through the model, which checks all others.
  for (const ScoreRequest& r : requests)
    if (const std::int32_t last = r.continuation.empty() ? 0 : r.continuation.back();
        last < 0 || last >= config().vocab)
      throw UserError("token {} is not in the model's vocabulary of {}", last, config().vocab);
  std::vector<Score> scores(requests.size(), Score{0, true});
  for (Index r = 0; r < std::ssize(requests); ++r)
    if (requests[r].continuation.empty()) scored(r, scores[r]);
  tree_->run(
      tree.runs(),
      [&](Index run, Index token, const NextToken& next) {
        ++cost_.logits;
        tree.for_each_asked(run, token, [&](const RequestTree::Asked& asked) {
          Score& score = scores[asked.request];
          score.log_likelihood += next.log_probability(asked.token);
          score.greedy = score.greedy && next.is_most_likely(asked.token);
          if (asked.last) scored(asked.request, score);
        });
      },
      ex_);
  cost_.requests += std::ssize(requests);
  cost_.tokens += tree.tokens();
  cost_.seconds += now() - start;
}

std::vector<Score> Scorer::score_all(std::span<const ScoreRequest> requests, Done done) {
  std::vector<Score> scores(requests.size());
  Index count = 0;
  score(requests, [&](Index request, const Score& score) {
    scores[request] = score;
    done(++count);
  });
  return scores;
}

}  // namespace ddl
