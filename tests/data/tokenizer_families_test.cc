// Tokenizers of other byte-level families: read, written, read again; others refused by name. And tokenizers with a name.
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "data/bpe.h"
#include "data/bpe_parse.h"
#include "data/stored_tokenizers.h"
#include "test_folder.h"

namespace ddl {
namespace {

std::vector<TokenId> ids_of(const Tokenizer& tokenizer, const std::string& text) {
  std::vector<TokenId> ids;
  tokenizer.encode(text, ids);
  return ids;
}

// Bytes and a few merges, with a merge that only a pattern that keeps three digits together, or a line break after a sign,
// lets happen.
BpeVocabulary few_merges(WordPattern words) {
  BpeVocabulary v = byte_vocabulary();
  v.tokens.pop_back();
  const auto add = [&](TokenId left, TokenId right) {
    v.tokens.push_back(v.tokens[left] + v.tokens[right]);
    v.merges.push_back({left, right, static_cast<TokenId>(v.tokens.size() - 1)});
    return static_cast<TokenId>(v.tokens.size() - 1);
  };
  add(add('1', '2'), '3');
  add('.', '\n');
  add('\t', 'a');
  v.end_of_text = static_cast<TokenId>(v.tokens.size());
  v.tokens.emplace_back("<|end_of_text|>");
  v.specials = {v.end_of_text};
  v.words = words;
  return v;
}

TEST(TokenizerFamilies, ComeBackFromTheirFiles) {
  const std::string text = "123 12 a.\n\n\ta 'S it's";
  std::set<std::vector<TokenId>> different;
  for (const WordPattern words :
       {WordPattern::kGpt2, WordPattern::kSmolLm, WordPattern::kLlama3, WordPattern::kQwen2}) {
    const TestFolder folder;
    const BpeTokenizer tokenizer(few_merges(words));
    tokenizer.save(folder.path());
    const auto again = load_tokenizer(folder.path());
    EXPECT_EQ(again->name(), word_pattern_name(words) + "-style bpe, 261 tokens");
    EXPECT_EQ(ids_of(*again, text), ids_of(tokenizer, text));
    EXPECT_EQ(again->decode(ids_of(*again, text)), text);
    different.insert(ids_of(tokenizer, text));
  }
  EXPECT_EQ(different.size(), 4u) << "the text tells them apart";
}

TEST(TokenizerFamilies, OthersAreRefusedByName) {
  const TestFolder folder;
  BpeTokenizer(few_merges(WordPattern::kLlama3)).save(folder.path());
  const Json good = parse_json(contents_of(folder / "tokenizer.json"));
  const auto with = [&](const Json& pretokenizer) {
    Json json = good;
    json["pre_tokenizer"] = pretokenizer;
    return message_of<UserError>([&] { parse_tokenizer_json(to_line(json), "tokenizer.json"); });
  };
  const auto has = [](const std::string& found, const std::string& words) {
    EXPECT_NE(found.find(words), found.npos) << found << "\nlacks " << words;
  };
  const auto split = [](const std::string& pattern) {
    return Json{
        {"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
  };
  const Json bytes{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  const auto sequence = [&](std::vector<Json> steps) {
    return Json{{"type", "Sequence"}, {"pretokenizers", steps}};
  };
  has(with(sequence(
          {split(R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}]+|\p{N}{1,3})"), bytes})),
      "GPT-4o's pattern (o200k)");
  has(with(sequence({split("\\p{N}{1,3}"), split("[\u4e00-\u9fa5]+"), bytes})), "DeepSeek's pattern");
  has(with(Json{{"type", "Metaspace"}}), "SentencePiece's words (Metaspace)");
  has(with(sequence({split("x+"), bytes})), "x+");
  has(with(bytes), "expected the pre_tokenizer");
  Json prefix = bytes;
  prefix["add_prefix_space"] = true;
  has(with(sequence({split(std::string(split_pattern(WordPattern::kLlama3))), prefix})), "add_prefix_space");
  Json inverted = split(std::string(split_pattern(WordPattern::kLlama3)));
  inverted["invert"] = true;
  has(with(sequence({inverted, bytes})), "expected the pre_tokenizer");
  Json merged = split(std::string(split_pattern(WordPattern::kQwen2)));
  merged["behavior"] = "MergedWithPrevious";
  has(with(sequence({merged, bytes})), "expected the pre_tokenizer");
  Json cut_again = bytes;  // by GPT-2's pattern, too
  cut_again["use_regex"] = true;
  for (const WordPattern words : {WordPattern::kLlama3, WordPattern::kQwen2})
    has(with(sequence({split(std::string(split_pattern(words))), cut_again})), "expected the pre_tokenizer");
  has(with(sequence({Json{{"type", "Digits"}, {"individual_digits", false}}, cut_again})),
      "expected the pre_tokenizer");
}

// Llama 3's files say ignore_merges: a word that is a token becomes it, whatever the merges lead to.
TEST(TokenizerFamilies, WholeWordsGoFirstWhereTheFileSaysSo) {
  const TestFolder folder;
  BpeVocabulary v = few_merges(WordPattern::kLlama3);
  v.tokens.insert(v.tokens.begin() + 260, "abc");  // no merge leads to it
  v.end_of_text = 261, v.specials = {261};
  for (const bool first : {false, true}) {
    v.whole_words_first = first;
    BpeTokenizer(v).save(folder.path());
    const Json model = parse_json(contents_of(folder / "tokenizer.json"))["model"];
    EXPECT_EQ(model.contains("ignore_merges"), first);
    const std::vector<TokenId> expected =
        first ? std::vector<TokenId>{260} : std::vector<TokenId>{'a', 'b', 'c'};
    EXPECT_EQ(ids_of(*load_tokenizer(folder.path()), "abc"), expected);
  }
}

struct StoredTokenizers : ::testing::Test {
  TestFolder folder;
  StoredTokenizers() { ::setenv("XDG_DATA_HOME", (folder / "home").c_str(), 1); }
  ~StoredTokenizers() override { ::unsetenv("XDG_DATA_HOME"); }
};

TEST_F(StoredTokenizers, HaveNames) {
  EXPECT_TRUE(stored_tokenizer_names().empty());
  const std::string nothing = message_of<UserError>([] { load_tokenizer("gpt2"); });
  EXPECT_NE(nothing.find("there are: none"), nothing.npos) << nothing;
  BpeTokenizer(few_merges(WordPattern::kQwen2)).save(folder / "mine");
  EXPECT_EQ(store_tokenizer("mine.2", {folder / "mine"}), folder / "home/ddl/tokenizers/mine.2");
  // A vocabulary and its merges under any names, in any order.
  const Json mine = parse_json(contents_of(folder / "mine/tokenizer.json"));
  folder.write("some-words.json", to_line(mine["model"]["vocab"]));
  folder.write("joins", "#version: 0.2\n1 2\n12 3\n");
  store_tokenizer("gpt2", {folder / "joins", folder / "some-words.json"});
  EXPECT_EQ(stored_tokenizer_names(), (std::vector<std::string>{"gpt2", "mine.2"}));
  EXPECT_EQ(load_tokenizer("mine.2")->name(), "qwen2-style bpe, 261 tokens");
  EXPECT_EQ(ids_of(*load_tokenizer("gpt2"), "123"), std::vector<TokenId>{257});
  const std::string unknown = message_of<UserError>([] { load_tokenizer("gpt3"); });
  EXPECT_NE(unknown.find("there are: gpt2, mine.2"), unknown.npos) << unknown;
}

TEST_F(StoredTokenizers, OddNamesAndFilesAreRefused) {
  for (const char* name : {"", "bytes", "../x", "a/b", ".hidden", "-x", "a b"})
    EXPECT_NE(message_of<UserError>([&] { store_tokenizer(name, {"bytes"}); }).find("expected a name"),
              std::string::npos)
        << name;
  EXPECT_NE(message_of<UserError>([&] {
              store_tokenizer("x", {"a", "b", "c"});
            }).find("3 files"),
            std::string::npos);
  folder.write("bad.json", "{}");
  EXPECT_NE(message_of<UserError>([&] { store_tokenizer("x", {folder / "bad.json"}); }).find("bad.json"),
            std::string::npos);
  EXPECT_TRUE(stored_tokenizer_names().empty()) << "nothing is kept of one that is refused";
}

}  // namespace
}  // namespace ddl
