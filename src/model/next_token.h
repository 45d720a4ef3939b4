// The distribution of the token that follows, from the logits:  log p_v = scale (logits_v - largest) - log_sum.
#pragma once

#include <cstdint>
#include <span>

namespace ddl {

struct NextToken {
  std::span<const float> logits_V;
  float scale = 1;
  float largest = 0;   // of the logits
  double log_sum = 0;  // log sum_v exp(scale (logits_v - largest))

  double log_probability(std::int32_t token) const {
    return static_cast<double>(scale) * (static_cast<double>(logits_V[token]) - largest) - log_sum;
  }
  bool is_most_likely(std::int32_t token) const;  // the first, among equals
};

// Of a decoder's logits, which are scaled already. They must be finite, and live as long.
NextToken next_token(std::span<const float> logits_V);

}  // namespace ddl
