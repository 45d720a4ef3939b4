// Log-likelihoods of continuations, as many as are asked for at once: beginnings they share are computed
// once, and only the logits that are needed.
//
// A score is a function of its request and the model to the last bit. What else is asked, in which order, how
// many tokens are computed at a time and on how many threads changes nothing.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "core/arena.h"
#include "core/exec.h"
#include "core/function_ref.h"
#include "core/index.h"
#include "dist/comm.h"
#include "eval/request.h"
#include "model/tree_scorer.h"
#include "model/weights.h"

namespace ddl {

struct ScorerOptions {
  Index batch_tokens = TreeShape{}.batch_tokens;  // computed at a time: memory against speed
};

class Scorer {
 public:
  using Scored = FunctionRef<void(Index request, const Score& score)>;
  using Done = FunctionRef<void(Index requests)>;

  // The weights must outlive the scorer and stay as they are. Throws UserError on impossible sizes.
  // With several ranks, all have the same model: rank 0 asks as if it were alone, and the others call serve().
  Scorer(const Weights& weights, ScorerOptions options, const Exec& ex, Comm& comm = alone());
  ~Scorer();  // rank 0's: the others have served
  Scorer(const Scorer&) = delete;
  Scorer& operator=(const Scorer&) = delete;

  const ModelConfig& config() const { return tree_->config(); }
  const Arena& arena() const { return tree_->arena(); }

  // Hands out each request's score as soon as it is known, in an order of its own. Requests longer than the
  // model's context lose tokens on the left: of context and continuation the last `context` + 1 tokens count.
  // Throws UserError where a continuation alone is longer, or a token is not in the vocabulary.
  void score(std::span<const ScoreRequest> requests, Scored scored);
  // The scores in the order of the requests; `done` hears how many are known.
  std::vector<Score> score_all(
      std::span<const ScoreRequest> requests, Done done = [](Index) {});

  // Scores this rank's part of whatever rank 0 asks for, until rank 0's scorer is gone.
  void serve();

  // What all calls so far took.
  struct Cost {
    Index requests = 0;
    Index tokens = 0;  // distinct ones that went through the model
    Index logits = 0;  // of them, how many were asked what follows
    double seconds = 0;
  };
  const Cost& cost() const { return cost_; }

 private:
  void score_here(std::span<const ScoreRequest> requests, Scored scored);
  std::vector<Score> score_together(std::span<const ScoreRequest> requests);

  Exec ex_;
  Comm& comm_;
  std::unique_ptr<TreeScorer> tree_;
  Cost cost_;
};

}  // namespace ddl
