// Which tokens an answer's bytes are in.
#include "data/answer_marks.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "pair_tokenizer.h"

namespace ddl {
namespace {

TEST(AnswerMarks, EveryTokenThatSharesAByteIsMarked) {
  const PairTokenizer tokenizer;
  const AnswerMarker marker(tokenizer);
  std::vector<TokenId> tokens;
  const std::string text = "In the barn. abcd";  // In|_|th|e|_|ba|rn|.|_|ab|cd
  tokenizer.encode(text, tokens);
  std::vector<std::uint8_t> marks;
  using Marks = std::vector<std::uint8_t>;
  ASSERT_EQ(tokens.size(), 12u);  // I and n are a pair of their own only in lower case
  const ByteSpan barn{7, 11};
  marker.mark(tokens, {&barn, 1}, text.size(), marks);
  EXPECT_EQ(marks, (Marks{0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0}));
  const ByteSpan inside[] = {{8, 9}, {14, 16}};  // half of "ba"; the halves of "ab" and "cd"
  marker.mark(tokens, inside, text.size(), marks);
  EXPECT_EQ(marks, (Marks{0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 2}));
  EXPECT_THROW(marker.mark(tokens, inside, text.size() + 1, marks), UserError);
}

}  // namespace
}  // namespace ddl
