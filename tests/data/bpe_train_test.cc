// Training: hand-computed examples, ties, independence of threads and of how the text is cut, and agreement
// with a trainer that recounts everything at every step.
#include "data/bpe_train.h"

#include <algorithm>
#include <map>

#include "data/pretokenize.h"
#include "tokenizer_testing.h"

namespace ddl {
namespace {

using testing::encode;

BpeVocabulary train(const std::vector<std::string>& documents, Index vocab_size, int threads = 1) {
  WordCounter words(Exec{threads});
  for (const std::string& document : documents) words.add(document);
  return train_bpe(words, vocab_size);
}

std::vector<std::string> made(const BpeVocabulary& vocabulary) {  // without bytes and end of text
  return {vocabulary.tokens.begin() + 256, vocabulary.tokens.end() - 1};
}

TEST(TokenizerTrain, HandComputed) {
  // Words: "abab" x3, " ab" x2, " c" x1.
  // Pairs: ab 3*2+2 = 8, ba 3, " a" 2, " c" 1                       -> ab
  // Then "(ab)(ab)" 3, " (ab)" 2, " c" 1                              -> abab
  // Then " (ab)" 2, " c" 1                                            -> " ab", and then nothing occurs
  // twice.
  const BpeVocabulary vocabulary = train({"abab ab", "abab ab", "abab c"}, 300);
  EXPECT_EQ(made(vocabulary), (std::vector<std::string>{"ab", "abab", " ab"}));
  EXPECT_EQ(vocabulary.tokens.size(), 260u);
  EXPECT_EQ(vocabulary.end_of_text, 259u);
  EXPECT_EQ(vocabulary.tokens.back(), "<|endoftext|>");
  const BpeTokenizer tokenizer(vocabulary);
  EXPECT_EQ(encode(tokenizer, "ababab ab c"), (std::vector<TokenId>{257, 256, 258, ' ', 'c'}));
}

TEST(TokenizerTrain, TiesGoToTheSmallerPair) {
  // Each pair occurs twice: (b,a) (a,c) (d,b). The smaller left id first.
  EXPECT_EQ(made(train({"ba", "ba", "db", "db", "ac", "ac"}, 300)),
            (std::vector<std::string>{"ac", "ba", "db"}));
  EXPECT_EQ(made(train({"ac", "ac", "ab", "ab"}, 300)),
            (std::vector<std::string>{"ab", "ac"}));  // then the right
}

TEST(TokenizerTrain, OverlappingPairs) {
  // "aaa" has the pair aa twice, and merges to (aa)a; then (aa)a occurs twice.
  EXPECT_EQ(made(train({"aaa", "aaa"}, 300)), (std::vector<std::string>{"aa", "aaa"}));
}

TEST(TokenizerTrain, VocabularySizeIsExactAndBounded) {
  const std::vector<std::string> documents(2, "the cat sat on the mat and the rat sat on the cat");
  const BpeVocabulary vocabulary = train(documents, 260);
  EXPECT_EQ(vocabulary.tokens.size(), 260u);
  EXPECT_EQ(vocabulary.end_of_text, 259u);
  EXPECT_EQ(train(documents, 257).merges.size(), 0u);
  EXPECT_NE(testing::error_of([&] { train(documents, 256); }).find("from 257"), std::string::npos);
  EXPECT_NE(testing::error_of([&] { train(documents, Index{1} << 40); }).find("from 257"), std::string::npos);
}

std::string random_text(std::uint64_t seed, std::size_t bytes) {
  const Random random(seed, "text");
  std::string text;
  for (std::uint64_t i = 0; text.size() < bytes; ++i) {
    const std::uint64_t length = 1 + random.below(2 * i, 7);
    for (std::uint64_t j = 0; j < length; ++j) text += "aaabbcd'9"[random.bits(2 * i + 1) / (j + 1) % 9];
    text += random.below(7 * i, 11) == 0 ? "  \n" : " ";
  }
  return text;
}

// The definition, as slow as it is plain: recount all pairs, merge the best one everywhere.
std::vector<std::string> slow_training(const std::string& text, std::size_t tokens) {
  std::map<std::string, long> counts;
  for_each_pretoken(text, [&](std::string_view word) { ++counts[std::string(word)]; });
  std::vector<std::string> names;
  for (int b = 0; b < 256; ++b) names.emplace_back(1, static_cast<char>(b));
  std::vector<std::pair<std::vector<std::size_t>, long>> words;
  for (const auto& [word, count] : counts) {
    words.push_back({{}, count});
    for (const char c : word) words.back().first.push_back(static_cast<unsigned char>(c));
  }
  while (names.size() < tokens) {
    std::map<std::pair<std::size_t, std::size_t>, long> pairs;
    for (const auto& [ids, count] : words)
      for (std::size_t i = 0; i + 1 < ids.size(); ++i) pairs[{ids[i], ids[i + 1]}] += count;
    auto best = pairs.end();
    for (auto it = pairs.begin(); it != pairs.end(); ++it)
      if (it->second >= 2 && (best == pairs.end() || it->second > best->second)) best = it;
    if (best == pairs.end()) break;
    const auto [left, right] = best->first;
    const std::string joined = names[left] + names[right];
    auto known = std::find(names.begin(), names.end(), joined);
    const auto id = static_cast<std::size_t>(known - names.begin());
    if (known == names.end()) names.push_back(joined);
    for (auto& [ids, count] : words) {
      std::vector<std::size_t> merged;
      for (std::size_t i = 0; i < ids.size(); ++i) {
        const bool here = i + 1 < ids.size() && ids[i] == left && ids[i + 1] == right;
        merged.push_back(here ? id : ids[i]);
        i += here;
      }
      ids = merged;
    }
  }
  return {names.begin() + 256, names.end()};
}

TEST(TokenizerTrain, AgreesWithPlainDefinition) {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    const std::string text = random_text(seed, 4000);
    EXPECT_EQ(made(train({text}, 256 + 150 + 1)), slow_training(text, 256 + 150)) << "seed " << seed;
  }
}

// Also on few letters and long words, where pieces overlap in every way.
TEST(TokenizerTrain, NoTokenIsMadeTwice) {
  const Random random(12, "words");
  std::uint64_t draw = 0;
  for (int round = 0; round < 300; ++round) {
    WordCounter words(Exec{1});
    const std::uint64_t letters = 1 + random.below(draw++, 3);
    for (int w = 0; w < 10; ++w) {
      std::string word;
      for (std::uint64_t n = 2 + random.below(draw++, 24); n > 0; --n)
        word += "abc"[random.below(draw++, letters)];
      for (std::uint64_t n = random.below(draw++, 4); n > 0; --n) words.add(word);
    }
    BpeVocabulary vocabulary = train_bpe(words, 450);
    std::sort(vocabulary.tokens.begin(), vocabulary.tokens.end());
    ASSERT_EQ(std::unique(vocabulary.tokens.begin(), vocabulary.tokens.end()), vocabulary.tokens.end());
  }
}

TEST(TokenizerTrain, SameForAnyThreadsAndCuts) {
  const std::string text = random_text(99, 5 << 20);  // several pieces
  const BpeVocabulary one = train({text}, 400, 1), three = train({text}, 400, 3);
  EXPECT_EQ(one.tokens, three.tokens);
  std::map<std::string, std::uint64_t> counts;
  for_each_pretoken(text, [&](std::string_view word) { ++counts[std::string(word)]; });
  WordCounter counter(Exec{2});
  counter.add(text);
  const auto words = counter.words();
  ASSERT_EQ(words.size(), counts.size());
  for (const auto& [word, count] : words) EXPECT_EQ(count, counts[std::string(word)]) << word;
}

TEST(TokenizerTrain, SavedTokenizerIsTheSame) {
  const std::string text = random_text(3, 20000);
  const BpeTokenizer trained(train({text}, 500));
  const auto folder = testing::fresh_folder();
  trained.save(folder.string());
  const auto loaded = load_tokenizer(folder.string());
  EXPECT_EQ(loaded->vocab_size(), trained.vocab_size());
  EXPECT_EQ(loaded->end_of_text(), trained.end_of_text());
  EXPECT_EQ(encode(*loaded, text), encode(trained, text));
  EXPECT_LT(encode(*loaded, text).size(), text.size() / 2);
}

TEST(TokenizerTrain, OneWordOfAMegabyteTakesNoQuadraticTime) {
  const Random random(1, "dna");
  std::string text;
  for (std::uint64_t i = 0; i < (1u << 20); ++i) text += "ACGT"[random.below(i, 4)];
  EXPECT_EQ(train({text}, 1000).tokens.size(), 1000u);
}

}  // namespace
}  // namespace ddl
