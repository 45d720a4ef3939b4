#include "model/next_token.h"

#include <algorithm>
#include <cmath>

namespace ddl {

bool NextToken::is_most_likely(std::int32_t token) const {
  return logits_V[token] == largest &&
         std::find(logits_V.begin(), logits_V.begin() + token, largest) == logits_V.begin() + token;
}

NextToken next_token(std::span<const float> logits_V) {
  NextToken next{.logits_V = logits_V, .largest = *std::max_element(logits_V.begin(), logits_V.end())};
  double sum = 0;
  for (const float z : logits_V) sum += std::exp(static_cast<double>(z) - static_cast<double>(next.largest));
  next.log_sum = std::log(sum);
  return next;
}

}  // namespace ddl
