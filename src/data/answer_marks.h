// From answers as bytes of a text to answers as tokens.
//
// The text is tokenised like any other, so a token may reach beyond an answer (" garden" with its space).
// Every token that shares a byte with the answer is marked.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "data/corpus.h"
#include "data/tokenizer.h"

namespace ddl {

// `answers` of `text`, as bytes of the text in form C (nfc.h). One that begins or ends inside what becomes one character
// gets all of it.
std::vector<ByteSpan> answers_in_nfc(std::string_view text, std::span<const ByteSpan> answers);

class AnswerMarker {
 public:
  explicit AnswerMarker(const Tokenizer& tokenizer);
  // `marks` gets a byte for each of `tokens`, the tokens of a text of `text_bytes` bytes: 0 ordinary, 1 the
  // first token of an answer, 2 a further one.
  void mark(std::span<const TokenId> tokens, std::span<const ByteSpan> answers, std::size_t text_bytes,
            std::vector<std::uint8_t>& marks) const;

 private:
  std::vector<std::uint32_t> token_bytes_;  // the length of each token of the vocabulary
};

}  // namespace ddl
