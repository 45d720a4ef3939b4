// GPT-2's own vocabulary, against ids published for it.
#include "core/json.h"
#include "data/bpe.h"
#include "data/bpe_parse.h"
#include "tokenizer_testing.h"

namespace ddl {
namespace {

using testing::encode;
using testing::shared_data;

class Gpt2 : public ::testing::Test {
 protected:
  static std::unique_ptr<Tokenizer> load(const std::string& file = "") {
    return load_tokenizer((shared_data("gpt2-tokenizer") / file).string());
  }
};

void expect_golden(const Tokenizer& tokenizer) {
  std::ifstream file(shared_data("gpt2-golden/cases.jsonl"));
  int cases = 0;
  for (std::string line; std::getline(file, line); ++cases) {
    const auto row = parse_json(line);
    const auto text = row["text"].get<std::string>();
    const auto ids = row["ids"].get<std::vector<TokenId>>();
    EXPECT_EQ(encode(tokenizer, text), ids) << line;
    EXPECT_EQ(tokenizer.decode(ids), text) << line;
  }
  EXPECT_EQ(cases, 281);
}

TEST_F(Gpt2, GoldenCasesFromEncoderJson) {
  DDL_NEEDS_SHARED("gpt2-golden/cases.jsonl");
  const auto tokenizer = load();
  EXPECT_EQ(tokenizer->vocab_size(), 50257);
  EXPECT_EQ(tokenizer->end_of_text(), 50256u);
  EXPECT_EQ(tokenizer->name(), "gpt2-style bpe, 50257 tokens");
  expect_golden(*tokenizer);
}

TEST_F(Gpt2, GoldenCasesFromTiktoken) {
  DDL_NEEDS_SHARED("gpt2-golden/cases.jsonl");
  const auto tokenizer = load("r50k_base.tiktoken");
  EXPECT_EQ(tokenizer->vocab_size(), 50257);
  EXPECT_EQ(tokenizer->end_of_text(), 50256u);
  expect_golden(*tokenizer);
}

TEST_F(Gpt2, MergesDerivedFromRanksAreThePublishedOnes) {
  DDL_NEEDS_SHARED("gpt2-tokenizer");
  const auto from_ranks = load("r50k_base.tiktoken"), from_merges = load("vocab.bpe");
  const auto& a = dynamic_cast<const BpeTokenizer&>(*from_ranks).vocabulary();
  const auto& b = dynamic_cast<const BpeTokenizer&>(*from_merges).vocabulary();
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_FALSE(a.whole_words_first);
  ASSERT_EQ(a.merges.size(), b.merges.size());
  for (std::size_t i = 0; i < a.merges.size(); ++i) {
    ASSERT_EQ(a.merges[i].left, b.merges[i].left) << i;
    ASSERT_EQ(a.merges[i].right, b.merges[i].right) << i;
    ASSERT_EQ(a.merges[i].result, b.merges[i].result) << i;
  }
}

TEST_F(Gpt2, GoldenCasesAfterSavingAndLoading) {
  DDL_NEEDS_SHARED("gpt2-golden/cases.jsonl");
  const auto folder = testing::fresh_folder();
  load()->save(folder.string());
  const auto again = load_tokenizer(folder.string());
  EXPECT_EQ(again->end_of_text(), 50256u);
  EXPECT_EQ(again->vocab_size(), 50257);
  expect_golden(*again);
}

TEST_F(Gpt2, EndOfTextInTextIsText) {
  DDL_NEEDS_SHARED("gpt2-tokenizer");
  const auto tokenizer = load();
  const auto ids = encode(*tokenizer, "<|endoftext|>");
  EXPECT_EQ(ids, (std::vector<TokenId>{27, 91, 437, 1659, 5239, 91, 29}));  // <| end of text |> as text
  EXPECT_EQ(tokenizer->decode(ids), "<|endoftext|>");
  std::vector<TokenId> asked;
  encode_with_end_of_text(*tokenizer, "a<|endoftext|><|endoftext|>b", asked);
  EXPECT_EQ(asked, (std::vector<TokenId>{64, 50256, 50256, 65}));
}

TEST_F(Gpt2, NovelsComeBackByteForByte) {
  DDL_NEEDS_SHARED("novels/valid.jsonl");
  const auto tokenizer = load();
  const std::string text = testing::read_text(shared_data("novels/valid.jsonl"));
  EXPECT_EQ(tokenizer->decode(encode(*tokenizer, text)), text);
}

}  // namespace
}  // namespace ddl
