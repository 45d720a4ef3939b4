// The word splitter against PCRE2 with GPT-2's pattern.
#include "data/pretokenize.h"

#include <utility>

#include "data/bpe_parse.h"
#include "data/gpt2_pattern.h"
#include "tokenizer_testing.h"

namespace ddl {
namespace {

using testing::append_utf8;

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> words;
  for_each_pretoken(text, [&](std::string_view word) { words.emplace_back(word); });
  return words;
}

TEST(Pretokenize, ByHand) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(split(""), Words{});
  EXPECT_EQ(split("Hello, world"), (Words{"Hello", ",", " world"}));
  EXPECT_EQ(split("a   b"), (Words{"a", "  ", " b"}));
  EXPECT_EQ(split("a   "), (Words{"a", "   "}));
  EXPECT_EQ(split("a\n\nb"), (Words{"a", "\n", "\n", "b"}));
  EXPECT_EQ(split("a\nb"), (Words{"a", "\n", "b"}));
  EXPECT_EQ(split("it's they'll I'VE '"), (Words{"it", "'s", " they", "'ll", " I", "'", "VE", " '"}));
  EXPECT_EQ(split("x's 's"), (Words{"x", "'s", " '", "s"}));
  EXPECT_EQ(split("abc123!?"), (Words{"abc", "123", "!?"}));
  EXPECT_EQ(split("\xff\xfe a\xc3\xa9\xc3"), (Words{"\xff\xfe", " a\xc3\xa9", "\xc3"}));
  EXPECT_EQ(split("a\u3000\u3000b"), (Words{"a", "\u3000", "\u3000", "b"}));
}

// Letters, numbers and spaces of each plane, and what the pattern treats specially, more often than chance.
std::uint32_t random_code(const Random& random, std::uint64_t i) {
  const std::uint64_t bits = random.bits(i);
  switch (bits % 8) {
    case 0:
      return static_cast<std::uint32_t>(bits >> 8) % 0x80;
    case 1:
      return " \n\t'   "[(bits >> 8) % 7];
    case 2:
      return static_cast<unsigned char>("'sdmtlvreLA19.!-"[(bits >> 8) % 16]);
    case 3:
      return static_cast<std::uint32_t>(bits >> 8) % 0x3100;
    case 4:
      return 0x2000 + static_cast<std::uint32_t>(bits >> 8) % 0x70;
    case 5:
      return static_cast<std::uint32_t>(bits >> 8) % 0xd800;
    case 6:
      return 0x10000 + static_cast<std::uint32_t>(bits >> 8) % 0x15000;
    default:
      return 0x20000 + static_cast<std::uint32_t>(bits >> 8) % 0x12000;
  }
}

// PCRE2 may know another version of Unicode than our table. Characters it does not know are left out; every
// other one must agree.
TEST(Pretokenize, AgreesWithPcre2OnRandomUnicode) {
  const Pattern pattern(kGpt2Pattern), unassigned("\\p{Cn}");
  const Random random(7, "pretokenize");
  std::uint64_t draw = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (std::uint64_t n = random.below(draw++, 24); n > 0; --n) {
      std::string character;
      append_utf8(character, random_code(random, draw++));
      if (unassigned.match(character, 0) == 0) text += character;
    }
    ASSERT_EQ(split(text), pattern.split(text)) << ::testing::PrintToString(text);
  }
}

std::vector<std::string> split(std::string_view text, WordPattern pattern) {
  std::vector<std::string> words;
  for_each_pretoken(text, pattern, [&](std::string_view word) { words.emplace_back(word); });
  return words;
}

TEST(Pretokenize, OtherFamiliesByHand) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(split("it'S x\tyz 12345 (a).\n\n b", WordPattern::kLlama3),
            (Words{"it", "'S", " x", "\tyz", " ", "123", "45", " (", "a", ").\n\n", " b"}));
  EXPECT_EQ(split("a 123", WordPattern::kQwen2), (Words{"a", " ", "1", "2", "3"}));
  EXPECT_EQ(split("a \n \n  b", WordPattern::kLlama3), (Words{"a", " \n \n", " ", " b"}));
  EXPECT_EQ(split("a  12 b", WordPattern::kSmolLm), (Words{"a", "  ", "1", "2", " b"}));
  EXPECT_EQ(split("a 1", WordPattern::kGpt2), (Words{"a", " 1"}));
}

// The patterns as the families' own files spell them; SmolLM cuts out numbers before GPT-2's pattern sees the rest.
TEST(Pretokenize, OtherFamiliesAgreeWithPcre2OnRandomUnicode) {
  const Pattern llama3{std::string(split_pattern(WordPattern::kLlama3))},
      qwen2{std::string(split_pattern(WordPattern::kQwen2))};
  const Pattern gpt2(kGpt2Pattern), number("\\p{N}"), unassigned("\\p{Cn}");
  const auto smollm = [&](const std::string& text) {
    std::vector<std::string> words;
    std::string between;
    const auto cut = [&] {
      for (const std::string& word : gpt2.split(std::exchange(between, ""))) words.push_back(word);
    };
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = number.match(text, at);
      if (end == at) {
        between += text[at++];
        continue;
      }
      cut();
      words.push_back(text.substr(at, end - at));
      at = end;
    }
    cut();
    return words;
  };
  const Random random(9, "pretokenize");
  std::uint64_t draw = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (std::uint64_t n = random.below(draw++, 24); n > 0; --n) {
      std::string character;
      append_utf8(character, random.below(draw++, 8) == 0
                                 ? static_cast<std::uint32_t>("\r\n's S"[random.below(draw++, 6)])
                                 : random_code(random, draw++));
      if (unassigned.match(character, 0) == 0) text += character;
    }
    ASSERT_EQ(split(text, WordPattern::kLlama3), llama3.split(text)) << ::testing::PrintToString(text);
    ASSERT_EQ(split(text, WordPattern::kQwen2), qwen2.split(text)) << ::testing::PrintToString(text);
    ASSERT_EQ(split(text, WordPattern::kSmolLm), smollm(text)) << ::testing::PrintToString(text);
  }
  EXPECT_EQ(split("'\u017fa", WordPattern::kLlama3), llama3.split("'\u017fa")) << "the long s is an s";
}

TEST(Pretokenize, AgreesWithPcre2OnEveryCharacter) {
  const Pattern pattern(kGpt2Pattern), unassigned("\\p{Cn}");
  int known = 0;
  for (std::uint32_t code = 0; code < 0x110000; ++code) {
    if (code >= 0xd800 && code < 0xe000) continue;
    std::string character;
    append_utf8(character, code);
    if (unassigned.match(character, 0) != 0) continue;
    ++known;
    for (const char* before : {"a", "1", "!", " "}) {
      const std::string text = before + character;
      ASSERT_EQ(split(text).size(), pattern.split(text).size()) << std::hex << code << " after " << before;
    }
  }
  EXPECT_GT(known, 250000);
}

// A byte that is not UTF-8 behaves like a sign: as if U+FFFD stood there.
TEST(Pretokenize, InvalidBytesAreSigns) {
  const Pattern pattern(kGpt2Pattern);
  const Random random(8, "pretokenize");
  // The last two are the letter U+00E9 written with more bytes than it needs.
  const std::string bad[] = {"\xff",
                             "\xc0",
                             "\xf5",
                             "\x80",
                             "\xe2\x98",
                             "\xed\xa0\x80",
                             "\xf4\x90\x80\x80",
                             "\xc1\xbf",
                             "\xe0\x83\xa9",
                             "\xf0\x80\x83\xa9"};
  std::uint64_t draw = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text, replaced;
    std::vector<std::size_t> place;  // replaced byte -> text byte
    for (std::uint64_t n = random.below(draw++, 16); n > 0; --n) {
      std::string character, stand_in;
      if (random.below(draw++, 4) == 0) {
        character = bad[random.below(draw++, std::size(bad))];
        stand_in = "\uFFFD";
      } else {
        character = stand_in = std::string(1, " a1!'s\n"[random.below(draw++, 7)]);
      }
      for (std::size_t i = 0; i < stand_in.size(); ++i) place.push_back(text.size());
      text += character;
      replaced += stand_in;
    }
    place.push_back(text.size());
    std::vector<std::string> expected;
    std::size_t at = 0;
    for (const std::string& word : pattern.split(replaced)) {
      expected.push_back(text.substr(place[at], place[at + word.size()] - place[at]));
      at += word.size();
    }
    ASSERT_EQ(split(text), expected) << ::testing::PrintToString(text);
  }
}

TEST(Pretokenize, CutsAreSafe) {
  const Random random(9, "pretokenize");
  std::uint64_t draw = 0;
  int cuts = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (std::uint64_t n = random.below(draw++, 24); n > 0; --n)
      text += "aslt1  '!\n"[random.below(draw++, 10)];
    const std::size_t cut = safe_cut(text, random.below(draw++, text.size() + 1));
    ASSERT_LE(cut, text.size());
    std::vector<std::string> halves = split(text.substr(0, cut));
    for (std::string& word : split(text.substr(cut))) halves.push_back(std::move(word));
    ASSERT_EQ(halves, split(text)) << ::testing::PrintToString(text) << " cut at " << cut;
    cuts += cut < text.size();
  }
  EXPECT_GT(cuts, 3000);
}

}  // namespace
}  // namespace ddl
