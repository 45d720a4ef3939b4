// Between tasks and scoring: a task asks for log p(continuation | context), token by token; a scorer answers.
#pragma once

#include <cstdint>
#include <vector>

namespace ddl {

// One thing to score. The context is never empty: where a text has none, it is the end-of-text token.
// Requests of one document come one after another, so that the scorer can share their contexts.
struct ScoreRequest {
  std::vector<std::int32_t> context, continuation;
};

struct Score {
  double log_likelihood = 0;  // sum over the continuation's tokens, natural logarithm
  bool greedy = false;        // every token of the continuation was the most likely one
};

}  // namespace ddl
