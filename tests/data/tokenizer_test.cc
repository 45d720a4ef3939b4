// A whole tokenizer in the forms GPT-2's was published in: encoder.json with vocab.bpe, and .tiktoken. One is made here:
// trained on a little text, written with GPT-2's order of ids, and its encodings computed by the plain definition. Where
// GPT-2's own files are there, they are held to the same, with the ids published for them.
#include "data/tokenizer.h"

#include <algorithm>
#include <array>
#include <map>

#include "core/json.h"
#include "data/bpe_parse.h"
#include "data/bpe_train.h"
#include "data/generated_corpus.h"
#include "data/gpt2_pattern.h"
#include "shared_data.h"
#include "test_folder.h"
#include "tokenizer_testing.h"

namespace ddl {
namespace {

using testing::encode;

struct GoldenCase {
  std::string text;
  std::vector<TokenId> ids;
};

// Files of one tokenizer, and what they must do.
struct TokenizerFiles {
  std::filesystem::path folder;  // with encoder.json, vocab.bpe and the ranks
  std::string ranks;             // the name of the .tiktoken file
  Index vocab_size = 0;
  std::vector<GoldenCase> golden;
};

const std::vector<std::string> kHardTexts = {
    "",
    " ",
    "a",
    "Hello, world",
    "It's they'll I'VE we've don't 'tis '",
    "Once upon a time, Ruby was in the meadow. Where is Ruby now?",
    "   three before, two  between, four after    ",
    "tab\there\n\nlines\r\n  and more \n",
    "abc123 4,567.89 \u00bd \u0663",
    "for (int i = 0; i < n; ++i) { x[i] += y[i]; }",
    "na\u00efve caf\u00e9 \u00dcber \u0416\u0443\u043a \u4e16\u754c\u3053\u3093",
    "\u2603\ufe0f \U0001f600\U0001f468\u200d\U0001f469 \u3000\u00a0x",
    std::string("zero\0byte", 9),
    "<|endoftext|> is text <|endoftext|>",
    std::string(200, 'a') + std::string(70, ' ') + std::string(100, '='),
};

// The order of GPT-2's first 256 ids: bytes that are printable in Latin-1, then the others. Their characters in the files
// are themselves and U+0100, U+0101, ...
struct ByteOrder {
  std::array<int, 256> id{};
  std::array<std::string, 256> character;
  ByteOrder() {
    const auto printable = [](int b) {
      return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174 && b <= 255);
    };
    int next = 0, other = 256;
    for (const bool first : {true, false})
      for (int b = 0; b < 256; ++b)
        if (printable(b) == first) {
          id[b] = next++;
          testing::append_utf8(character[b], static_cast<std::uint32_t>(first ? b : other++));
        }
  }
  std::string spell(std::string_view bytes) const {
    std::string text;
    for (const char c : bytes) text += character[static_cast<unsigned char>(c)];
    return text;
  }
};

std::string base64(std::string_view bytes) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const auto byte = [&](std::size_t j) {
      return i + j < bytes.size() ? static_cast<unsigned char>(bytes[i + j]) : 0u;
    };
    const std::uint32_t bits = byte(0) << 16 | byte(1) << 8 | byte(2);
    for (std::size_t j = 0; j < 4; ++j)
      out += i + j <= bytes.size() ? digits[bits >> (18 - 6 * j) & 63] : '=';
  }
  return out;
}

using Pairs = std::vector<std::pair<std::string, std::string>>;

// The definition, on strings: of all neighbours the pair that comes first in the list is joined, leftmost first, until no
// neighbours are in the list. Words by PCRE2.
std::vector<TokenId> encode_by_definition(const std::string& text, const Pairs& merges,
                                          const std::map<std::string, TokenId>& id_of) {
  std::map<std::pair<std::string, std::string>, std::size_t> rank;
  for (std::size_t i = 0; i < merges.size(); ++i) rank[merges[i]] = i;
  std::vector<TokenId> ids;
  for (const std::string& word : Pattern(kGpt2Pattern).split(text)) {
    std::vector<std::string> parts;
    for (const char c : word) parts.emplace_back(1, c);
    while (true) {
      std::size_t best = merges.size(), where = 0;
      for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
        const auto found = rank.find({parts[i], parts[i + 1]});
        if (found != rank.end() && found->second < best) best = found->second, where = i;
      }
      if (best == merges.size()) break;
      parts[where] += parts[where + 1];
      parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(where) + 1);
    }
    for (const std::string& part : parts) ids.push_back(id_of.at(part));
  }
  return ids;
}

TokenizerFiles make_files(const TestFolder& folder) {
  WordCounter words(Exec{1});
  for (Index i = 0; i < 20; ++i) words.add(generate_story(1, i).text);
  for (int twice = 0; twice < 2; ++twice)
    for (const std::string& text : kHardTexts) words.add(text);
  const BpeVocabulary trained = train_bpe(words, 700);

  const ByteOrder bytes;
  std::vector<std::string> tokens(256);
  for (int b = 0; b < 256; ++b) tokens[bytes.id[b]] = static_cast<char>(b);
  Pairs merges;
  std::string vocab_bpe = "#version: 0.2\n";
  for (const Merge& merge : trained.merges) {
    merges.emplace_back(trained.tokens[merge.left], trained.tokens[merge.right]);
    tokens.push_back(merges.back().first + merges.back().second);
    vocab_bpe += bytes.spell(merges.back().first) + " " + bytes.spell(merges.back().second) + "\n";
  }
  std::map<std::string, TokenId> id_of;
  Json encoder;
  std::string ranks;
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    id_of[tokens[id]] = static_cast<TokenId>(id);
    encoder[bytes.spell(tokens[id])] = id;
    ranks += base64(tokens[id]) + " " + std::to_string(id) + "\n";
  }
  encoder["<|endoftext|>"] = tokens.size();
  folder.write("encoder.json", to_line(encoder));
  folder.write("vocab.bpe", vocab_bpe);
  folder.write("made.tiktoken", ranks);

  TokenizerFiles files{folder.path(), "made.tiktoken", static_cast<Index>(tokens.size()) + 1, {}};
  for (const std::string& text : kHardTexts)
    files.golden.push_back({text, encode_by_definition(text, merges, id_of)});
  return files;
}

TokenizerFiles published_files() {
  TokenizerFiles files{shared_data("gpt2-tokenizer"), "r50k_base.tiktoken", 50257, {}};
  std::ifstream file(shared_data("gpt2-golden/cases.jsonl"));
  for (std::string line; std::getline(file, line);) {
    const Json row = parse_json(line);
    files.golden.push_back({row["text"], row["ids"].get<std::vector<TokenId>>()});
  }
  EXPECT_EQ(files.golden.size(), 281u);
  return files;
}

class TokenizerForms : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { files_ = GetParam() == "made_here" ? make_files(folder_) : published_files(); }

  std::unique_ptr<Tokenizer> load(const std::string& file = "") const {
    return load_tokenizer((files_.folder / file).string());
  }
  TokenId end_of_text() const { return static_cast<TokenId>(files_.vocab_size - 1); }
  void expect_golden(const Tokenizer& tokenizer) const {
    EXPECT_EQ(tokenizer.vocab_size(), files_.vocab_size);
    EXPECT_EQ(tokenizer.end_of_text(), end_of_text());
    EXPECT_EQ(tokenizer.name(), fmt::format("gpt2-style bpe, {} tokens", files_.vocab_size));
    for (const GoldenCase& golden : files_.golden) {
      EXPECT_EQ(encode(tokenizer, golden.text), golden.ids) << ::testing::PrintToString(golden.text);
      EXPECT_EQ(tokenizer.decode(golden.ids), golden.text);
    }
  }

  TestFolder folder_;
  TokenizerFiles files_;
};

INSTANTIATE_TEST_SUITE_P(, TokenizerForms,
                         ::testing::ValuesIn(shared_data_has({"gpt2-tokenizer", "gpt2-golden/cases.jsonl"})
                                                 ? std::vector<std::string>{"made_here", "published"}
                                                 : std::vector<std::string>{"made_here"}),
                         [](const auto& test) { return test.param; });

TEST_P(TokenizerForms, GoldenCasesFromEncoderJson) {
  expect_golden(*load());
  expect_golden(*load("encoder.json"));
  expect_golden(*load("vocab.bpe"));
}

TEST_P(TokenizerForms, GoldenCasesFromTiktoken) { expect_golden(*load(files_.ranks)); }

TEST_P(TokenizerForms, GoldenCasesAfterSavingAndLoading) {
  std::filesystem::create_directory(folder_ / "saved");
  load()->save(folder_ / "saved");
  expect_golden(*load_tokenizer(folder_ / "saved"));
}

TEST_P(TokenizerForms, MergesDerivedFromRanksAreThoseOfTheOtherFile) {
  const auto from_ranks = load(files_.ranks), from_merges = load("vocab.bpe");
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

TEST_P(TokenizerForms, EndOfTextInTextIsText) {
  const auto tokenizer = load();
  const auto ids = encode(*tokenizer, "<|endoftext|>");
  EXPECT_EQ(std::count(ids.begin(), ids.end(), end_of_text()), 0);
  EXPECT_EQ(tokenizer->decode(ids), "<|endoftext|>");
  if (GetParam() == "published") {  // <| end of text |>
    EXPECT_EQ(ids, (std::vector<TokenId>{27, 91, 437, 1659, 5239, 91, 29}));
  }
  std::vector<TokenId> asked;
  encode_with_end_of_text(*tokenizer, "a<|endoftext|><|endoftext|>b", asked);
  EXPECT_EQ(asked, (std::vector<TokenId>{64, end_of_text(), end_of_text(), 65}));
}

TEST_P(TokenizerForms, StoriesComeBackByteForByte) {
  const auto tokenizer = load();
  std::string text;
  for (Index i = 100; i < 200; ++i) text += generate_story(2, i).text + "\n\n";
  const auto ids = encode(*tokenizer, text);
  EXPECT_LT(ids.size(), text.size() / 2);
  EXPECT_EQ(tokenizer->decode(ids), text);
}

DDL_TEST_WITH_SHARED(Gpt2, NovelsComeBackByteForByte, "gpt2-tokenizer", "novels/valid.jsonl") {
  const auto tokenizer = load_tokenizer(shared_data("gpt2-tokenizer").string());
  const std::string text = testing::read_text(shared_data("novels/valid.jsonl"));
  EXPECT_TRUE(tokenizer->decode(encode(*tokenizer, text)) == text);  // not EXPECT_EQ: megabytes of message
}

}  // namespace
}  // namespace ddl
