// What a residual rule says about every token of a text, sublayer by sublayer: gates, targets, readouts, mixing weights.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/exec.h"
#include "core/index.h"
#include "model/weights.h"

namespace ddl {

struct TraceSeries {
  std::string name;         // as the rule calls it: "gate", "target", "readout", ...
  Index per_token = 1;      // P
  float low = 0, high = 0;  // the range of the values; equal: unbounded
  std::vector<float> value_NP;
  bool is_gate() const { return per_token == 1 && high > low; }
};

struct Trace {
  Index tokens = 0;
  std::vector<float> loss_N;                          // of the token that follows; the last has none, 0
  std::vector<std::vector<TraceSeries>> by_sublayer;  // [2 layers]; empty inside where the rule has no series
};

// One sequence, from its first token. Runs on the native engine. Throws UserError where it is longer than the model's
// context, has no token, or a token is not in the vocabulary.
Trace trace_tokens(const Weights& weights, std::span<const std::int32_t> tokens, const Exec& ex);

}  // namespace ddl
