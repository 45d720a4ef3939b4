// What a residual rule shows of itself: to metrics and audits, which need not know the rule.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "core/index.h"

namespace ddl {

// What a series is in a write of the form  X <- X - e k r^T + w k v^T,  r = X^T k, for whoever interprets it without
// knowing the rule.
enum class SeriesRole {
  kOther,
  kGate,            // e = w; without an erase w
  kEraseGate,       // e, where w has a gate of its own
  kWriteGate,       // w, likewise
  kTarget,          // v
  kReadout,         // r
  kDirectionScale,  // k is h times this
};

// Something a rule can report about every token of the last pass at one sublayer, for metrics and audits.
struct TokenSeries {
  std::string name;  // the user's word for it: "gate", "target", "readout", ...
  SeriesRole role = SeriesRole::kOther;
  const float* values = nullptr;  // values[n * stride + i], i < per_token
  Index per_token = 1, stride = 1;
  float low = 0, high = 0;  // the range of the values; equal: unbounded
};

// The first with this role, of TokenSeries or what is made of them; null: none has it.
template <class Series>
const Series* find_series(const std::vector<Series>& all, SeriesRole role) {
  const auto found = std::find_if(all.begin(), all.end(), [&](const Series& s) { return s.role == role; });
  return found == all.end() ? nullptr : &*found;
}

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
