// Encoding and decoding of any bytes and any ids, by vocabularies made here.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <map>

#include "data/bpe_train.h"
#include "data/pretokenize.h"
#include "tokenizer_testing.h"

namespace ddl {
namespace {

using testing::encode;

std::string random_bytes(const Random& random, std::uint64_t from, std::size_t n) {
  std::string text;
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t bits = random.bits(from + i);
    text += bits % 3 == 0 ? static_cast<char>(bits >> 8) : "abc  '\n1\xc3\xa9"[(bits >> 8) % 10];
  }
  return text;
}

// A vocabulary with many merges over few bytes, so that random text uses them.
BpeTokenizer small_tokenizer(Index vocab_size = 600) {
  WordCounter words(Exec{1});
  words.add(random_bytes(Random(1, "train"), 0, 60000));
  return BpeTokenizer(train_bpe(words, vocab_size));
}

TEST(TokenizerBpe, EveryByteStringComesBack) {
  const BpeTokenizer bpe = small_tokenizer();
  const auto bytes = load_tokenizer("bytes");
  const Random random(2, "round trip");
  for (std::uint64_t round = 0; round < 3000; ++round) {
    const std::string text = random_bytes(random, round << 20, random.below(round, 200));
    ASSERT_EQ(bpe.decode(encode(bpe, text)), text) << ::testing::PrintToString(text);
    ASSERT_EQ(bytes->decode(encode(*bytes, text)), text);
  }
  std::string all;
  for (int b = 0; b < 256; ++b) all += static_cast<char>(b);
  EXPECT_EQ(bpe.decode(encode(bpe, all)), all);
}

TEST(TokenizerBpe, AnyIdsDecode) {
  const BpeTokenizer bpe = small_tokenizer();
  const std::vector<TokenId> ids = {'h', 1u << 31, std::numeric_limits<TokenId>::max(), 600, 'i'};
  EXPECT_EQ(bpe.decode(ids), "hi");
  const Random random(4, "ids");
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const TokenId any[] = {static_cast<TokenId>(random.bits(i)), static_cast<TokenId>(random.below(i, 700))};
    EXPECT_LE(bpe.decode(any).size(), 1000u);
  }
}

TEST(TokenizerBpe, RawBytes) {
  const auto bytes = load_tokenizer("bytes");
  EXPECT_EQ(bytes->vocab_size(), 257);
  EXPECT_EQ(bytes->end_of_text(), 256u);
  EXPECT_EQ(bytes->name(), "bytes");
  EXPECT_EQ(encode(*bytes, "Az\xff"), (std::vector<TokenId>{65, 122, 255}));
  const auto folder = testing::fresh_folder();
  bytes->save(folder.string());
  const auto again = load_tokenizer(folder.string());
  EXPECT_EQ(again->name(), "bytes");
  EXPECT_EQ(again->vocab_size(), 257);
  EXPECT_EQ(again->end_of_text(), 256u);
  EXPECT_EQ(encode(*again, "Az\xff"), (std::vector<TokenId>{65, 122, 255}));
}

TEST(TokenizerBpe, EncodeAppends) {
  std::vector<TokenId> ids = {7};
  load_tokenizer("bytes")->encode("A", ids);
  small_tokenizer().encode("", ids);
  EXPECT_EQ(ids, (std::vector<TokenId>{7, 65}));
}

using Ranks = std::map<std::pair<TokenId, TokenId>, std::size_t>;
Ranks ranks_of(const BpeVocabulary& vocabulary) {
  Ranks ranks;
  for (std::size_t i = 0; i < vocabulary.merges.size(); ++i)
    ranks[{vocabulary.merges[i].left, vocabulary.merges[i].right}] = i;
  return ranks;
}

// The definition: look at all pairs, merge the one of lowest rank, leftmost first, until there is none.
std::vector<TokenId> slow_encode(const BpeVocabulary& vocabulary, const Ranks& rank, std::string_view word) {
  std::vector<TokenId> ids;
  for (const char c : word) ids.push_back(static_cast<unsigned char>(c));
  while (true) {
    std::size_t best = vocabulary.merges.size(), where = 0;
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto found = rank.find({ids[i], ids[i + 1]});
      if (found != rank.end() && found->second < best) best = found->second, where = i;
    }
    if (best == vocabulary.merges.size()) return ids;
    ids[where] = vocabulary.merges[best].result;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(where) + 1);
  }
}

// Lengths on both sides of where the short method hands over to the heap.
TEST(TokenizerBpe, MergesLowestRankFirstAtEveryLength) {
  const BpeTokenizer bpe = small_tokenizer(900);
  const Ranks ranks = ranks_of(bpe.vocabulary());
  const Random random(5, "words");
  std::uint64_t draw = 0;
  for (std::size_t length = 0; length < 130; ++length)
    for (int round = 0; round < 20; ++round) {
      std::string word;
      while (word.size() < length) word += "abc"[random.below(draw++, 3)];
      ASSERT_EQ(encode(bpe, word), slow_encode(bpe.vocabulary(), ranks, word)) << word;
    }
}

TEST(TokenizerBpe, RankDecidesNotPosition) {
  BpeVocabulary v = byte_vocabulary();
  v.tokens.insert(v.tokens.end(), {"bc", "ab", "abc"});
  v.merges = {{'b', 'c', 257}, {'a', 'b', 258}, {258, 'c', 259}};
  const BpeTokenizer first_bc(v);
  EXPECT_EQ(encode(first_bc, "abc"),
            (std::vector<TokenId>{'a', 257}));  // "abc" is a token, but merges miss it
  std::swap(v.merges[0], v.merges[1]);
  EXPECT_EQ(encode(BpeTokenizer(v), "abc"), (std::vector<TokenId>{259}));
  std::swap(v.merges[0], v.merges[1]);
  v.whole_words_first = true;
  EXPECT_EQ(encode(BpeTokenizer(v), "abc"), (std::vector<TokenId>{259}));
}

TEST(TokenizerBpe, AMegabyteWithoutASpaceTakesNoQuadraticTime) {
  WordCounter words(Exec{1});
  words.add(std::string(4096, 'a'));
  const BpeTokenizer bpe(train_bpe(words, 280));
  const std::string text(1 << 20, 'a');
  const auto start = std::chrono::steady_clock::now();
  const auto ids = encode(bpe, text);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(bpe.decode(ids), text);
  EXPECT_LT(ids.size(), text.size() / 1000);
  EXPECT_LT(taken.count(), 20);  // a tenth of a second here; hours if quadratic
}

TEST(TokenizerBpe, SpecialsNeverComeFromText) {
  // "end" is an ordinary word that a vocabulary declares special.
  BpeVocabulary v = byte_vocabulary();
  v.tokens.insert(v.tokens.end(), {"<|pad|>", "end"});
  v.specials = {256, 257, 258};
  for (const bool whole_words : {false, true}) {
    v.whole_words_first = whole_words;
    const BpeTokenizer bpe(v);
    for (const std::string text : {"<|endoftext|>", "<|pad|>", "end", "the end<|pad|><|endoftext|>end"}) {
      const auto ids = encode(bpe, text);
      EXPECT_EQ(bpe.decode(ids), text);
      EXPECT_TRUE(std::all_of(ids.begin(), ids.end(), [](TokenId id) { return id < 256; })) << text;
    }
  }
}

TEST(TokenizerBpe, EndOfTextWhereAskedFor) {
  const auto bytes = load_tokenizer("bytes");
  std::vector<TokenId> ids;
  encode_with_end_of_text(*bytes, "<|endoftext|>a<|endoftext", ids);
  ASSERT_GE(ids.size(), 3u);
  EXPECT_EQ(ids[0], 256u);
  EXPECT_EQ(ids[1], 'a');
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 256u), 1);
  EXPECT_EQ(bytes->decode(ids), "<|endoftext|>a<|endoftext");
}

}  // namespace
}  // namespace ddl
