// Choosing the next token. A choice is a function of (logits, history, options, stream, step): the same seed
// gives the same text, whatever else is sampled in the same batch.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/index.h"
#include "core/rng.h"

namespace ddl {

struct SamplerOptions {
  double temperature = 0.8;       // 0: the most likely token, always
  Index top_k = 0;                // keep the k most likely; 0: all
  double top_p = 1;               // then the fewest most likely that hold this share
  double min_p = 0;               // then those at least this likely, relative to the most likely
  double repetition_penalty = 1;  // of tokens in the history: logits / penalty where positive, else * penalty
  // Of what was chosen so far, c times each:  logit - frequency_penalty c - presence_penalty [c > 0].
  double frequency_penalty = 0, presence_penalty = 0;
  std::vector<std::pair<std::int32_t, double>> logit_bias = {};  // added to a token's logit
  std::uint64_t seed = 0;

  void check() const;  // throws UserError
};

// Logits that are not numbers; whoever knows where the weights came from can say so.
class BadWeights : public UserError {
 public:
  using UserError::UserError;
};

class Sampler {
 public:
  // `stream` tells several texts of one seed apart.
  Sampler(const SamplerOptions& options, std::uint64_t stream);

  // logits_V may be the front of a longer row: ids outside are never chosen. Throws BadWeights where
  // the logits are not numbers.
  std::int32_t next(std::span<const float> logits_V, std::span<const std::int32_t> history);

 private:
  struct Candidate {
    float logit;  // after penalty
    std::int32_t id;
  };
  // Most likely first; of equals the smaller id.
  static bool before(const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  }

  std::int32_t choose(std::span<const float> logits_V, std::span<const std::int32_t> history);
  void penalise(std::span<const float> logits_V, std::span<const std::int32_t> history);

  SamplerOptions options_;
  Random random_;
  std::map<std::int32_t, int> chosen_;  // how often
  std::uint64_t step_ = 0;
  std::vector<Candidate> candidates_;
  std::vector<double> weight_;
};

}  // namespace ddl
