// Every token of a text with its log-probability, its rank and what else was likely. A text may be longer than the
// model's context: it is cut as rolling_windows.h says.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/exec.h"
#include "core/function_ref.h"
#include "core/index.h"
#include "model/tree_scorer.h"
#include "model/weights.h"

namespace ddl {

struct LikelyToken {
  std::int32_t token = 0;
  double log_probability = 0;  // natural logarithm
};

struct GateValues {
  std::string name;  // "gate"; some rules have several
  std::vector<float> value_S;
};

struct ScoredToken : LikelyToken {
  Index position = 0;             // in the text; its first scored token is 1
  Index rank = 1;                 // among the vocabulary; 1 is the most likely
  std::vector<LikelyToken> best;  // the most likely, first the best
  std::vector<GateValues> gates;  // of the position that predicts it, which has read the token before
};

struct ScoreTextOptions {
  Index best = 0;      // how many of the most likely tokens
  bool gates = false;  // of every sublayer; native engine
};

// Hands out tokens[1], tokens[2], ... in order; tokens[0] is read and not scored. Throws UserError where a token is not
// in the vocabulary, where there are fewer than two, and where gates are asked for of a rule that has none.
void score_text(const Weights& weights, std::span<const std::int32_t> tokens, const ScoreTextOptions& options,
                FunctionRef<void(const ScoredToken&)> scored, const Exec& ex);

// The `count` most likely tokens; of equal ones the first in the vocabulary comes first.
std::vector<std::int32_t> most_likely(std::span<const float> logits_V, Index count);
std::vector<LikelyToken> most_likely(const NextToken& next, Index count);
Index rank_of(const NextToken& next, std::int32_t token);

}  // namespace ddl
