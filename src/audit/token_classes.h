// Kinds of tokens, so that gates can be compared between them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/index.h"
#include "data/tokenizer.h"

namespace ddl {

struct TokenClass {
  std::string name;                   // "frequency"
  std::vector<std::string> groups;    // "rare", "middle", "frequent"
  std::vector<std::uint8_t> group_N;  // of every token
};

// Windows of `context` input tokens, one after another, and the loss of what follows each token.
//   frequency   rare, middle, frequent: thirds of the text, by how often the token is in it
//   position    in the window
//   word        start, inside, other (no letter or digit in it); only with a tokenizer
//   repeated    new, repeated: whether the window has had the token before
//   loss        low, middle, high: thirds
std::vector<TokenClass> token_classes(const std::vector<std::int32_t>& token_N, Index context,
                                      const std::vector<float>& loss_N, const Tokenizer* tokenizer);

}  // namespace ddl
