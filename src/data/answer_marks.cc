#include "data/answer_marks.h"

#include "core/error.h"
#include "core/index.h"

namespace ddl {

AnswerMarker::AnswerMarker(const Tokenizer& tokenizer) {
  token_bytes_.reserve(static_cast<std::size_t>(tokenizer.vocab_size()));
  for (Index id = 0; id < tokenizer.vocab_size(); ++id) {
    const auto token = static_cast<TokenId>(id);
    token_bytes_.push_back(static_cast<std::uint32_t>(tokenizer.decode({&token, 1}).size()));
  }
}

void AnswerMarker::mark(std::span<const TokenId> tokens, std::span<const ByteSpan> answers,
                        std::size_t text_bytes, std::vector<std::uint8_t>& marks) const {
  std::vector<Index> begins;  // of each token, and the end
  begins.reserve(tokens.size() + 1);
  Index at = 0;
  for (const TokenId token : tokens) {
    begins.push_back(at);
    at += token_bytes_[token];
  }
  begins.push_back(at);
  if (at != static_cast<Index>(text_bytes))
    throw UserError(
        "the tokenizer turns a text of {} bytes into tokens of {}: it does not keep text as it is, so "
        "answers in it cannot be located",
        text_bytes, at);
  marks.assign(tokens.size(), 0);
  for (const ByteSpan& answer : answers) {
    bool first = true;
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      if (begins[t] >= answer.end) break;
      if (begins[t + 1] <= answer.begin || begins[t + 1] == begins[t]) continue;
      marks[t] = first ? 1 : 2;
      first = false;
    }
  }
}

}  // namespace ddl
