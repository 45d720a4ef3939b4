// What a residual rule shows of itself: to metrics and audits, which need not know the rule.
#pragma once

#include <string>
#include <vector>

#include "core/index.h"

namespace ddl {

// Something a rule can report about every token of the last pass at one sublayer, for metrics and audits.
struct TokenSeries {
  std::string name;               // "gate", "target", "readout", ...
  const float* values = nullptr;  // values[n * stride + i], i < per_token
  Index per_token = 1, stride = 1;
  float low = 0, high = 0;  // the range of the values; equal: unbounded
};

// What a rule shows of its tokens in front of sublayer s, for audits.
struct StateView {
  const float* state_NDC = nullptr;  // null: it has no running state
  Index channels = 0;                // D
  const float* rstd_N = nullptr;     // 1 / sqrt(mean(x_in^2) + eps) of what sublayer s reads
};

// An intervention, for audits: at one sublayer every token's values of a series are the same numbers.
struct Replacement {
  Index sublayer = 0;
  std::string series;
  std::vector<float> values;  // as many as the series has per token
};

}  // namespace ddl
