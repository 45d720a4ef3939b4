#include "data/answer_marks.h"

#include <algorithm>
#include <string>

#include "core/error.h"
#include "core/index.h"
#include "data/nfc.h"

namespace ddl {

std::vector<ByteSpan> answers_in_nfc(std::string_view text, std::span<const ByteSpan> answers) {
  const auto may_cut = [&](Index at) {
    if (at <= 0 || at >= std::ssize(text)) return true;
    const auto here = static_cast<std::size_t>(at);
    return (static_cast<unsigned char>(text[here]) & 0xc0) != 0x80 && can_cut_nfc(text, here);
  };
  std::vector<ByteSpan> moved(answers.begin(), answers.end());
  std::vector<Index*> begins, ends;  // of the answers, in the order of the text
  for (ByteSpan& answer : moved) begins.push_back(&answer.begin), ends.push_back(&answer.end);
  const auto earlier = [](const Index* a, const Index* b) { return *a < *b; };
  std::sort(begins.begin(), begins.end(), earlier);
  std::sort(ends.begin(), ends.end(), earlier);
  auto begin = begins.begin(), end = ends.begin();
  std::string buffer;
  for (Index at = 0, from = 0, size = 0; at <= std::ssize(text); ++at) {
    if (!may_cut(at)) continue;
    for (; begin != begins.end() && **begin < at; ++begin) **begin = size;  // the cut before
    const auto piece = text.substr(static_cast<std::size_t>(from), static_cast<std::size_t>(at - from));
    size += std::ssize(to_nfc(piece, buffer));
    from = at;
    for (; end != ends.end() && **end <= at; ++end) **end = size;
  }
  return moved;
}

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
