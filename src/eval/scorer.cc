#include "eval/scorer.h"

#include <cstdint>

#include "core/clock.h"
#include "core/error.h"
#include "core/exec.h"
#include "core/index.h"
#include "eval/request_tree.h"
#include "model/engine.h"

namespace ddl {

Scorer::Scorer(const Weights& weights, ScorerOptions options, const Exec& ex)
    : ex_(ex), tree_(make_tree_scorer(weights, {.batch_tokens = options.batch_tokens}, ex)) {}

void Scorer::score(std::span<const ScoreRequest> requests, Scored scored) {
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
