// Every form of file, well-formed and not.
#include <algorithm>

#include "data/bpe.h"
#include "data/bpe_parse.h"
#include "data/byte_alphabet.h"
#include "tokenizer_testing.h"

namespace ddl {
namespace {

using testing::encode;
using testing::error_of;
using testing::write_text;

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) out += (c == '"' || c == '\\') ? std::string("\\") + c : std::string(1, c);
  return out + "\"";
}

// 256 bytes in order of value, then what is given.
std::string vocab_json(const std::string& more) {
  std::string json = "{";
  for (int b = 0; b < 256; ++b)
    json += quoted(to_byte_alphabet(std::string(1, static_cast<char>(b)))) + ":" + std::to_string(b) + ",";
  return json + more + "}";
}
const char* const kMore = R"("ab":256,"Ġab":257,"<|endoftext|>":258)";

std::string tokenizer_json(
    const std::string& vocab, const std::string& merges, const std::string& model = "",
    const std::string& root = R"("pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false})") {
  return R"({"version":"1.0",)" + root + R"(,"model":{"type":"BPE",)" + model + R"("vocab":)" + vocab +
         R"(,"merges":)" + merges + "}}";
}

std::string base64_ranks() {  // bytes in order of value, then "ab"
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t b = 0; b < 256; ++b)
    text += std::string{digits[b >> 2], digits[(b & 3) << 4]} + "== " + std::to_string(b) + "\n";
  return text + "YWI= 256\n";
}

const std::vector<TokenId> kAbIds = {256, 257, 'b'};  // "ab abb"

TEST(TokenizerFiles, ByteAlphabet) {
  std::string all;
  for (int b = 0; b < 256; ++b) all += static_cast<char>(b);
  EXPECT_EQ(from_byte_alphabet(to_byte_alphabet(all)), all);
  EXPECT_EQ(to_byte_alphabet(" \n~\xad"), "ĠĊ~Ń");
  EXPECT_EQ(from_byte_alphabet("a b"), std::nullopt);  // a real space is not in the alphabet
  EXPECT_EQ(from_byte_alphabet("中"), std::nullopt);
  EXPECT_EQ(from_byte_alphabet("\xc4"), std::nullopt);
}

TEST(TokenizerFiles, TokenizerJsonWithBothFormsOfMerges) {
  for (const char* merges : {R"(["a b","Ġ ab"])", R"([["a","b"],["Ġ","ab"]])"}) {
    const BpeTokenizer t(parse_tokenizer_json(tokenizer_json(vocab_json(kMore), merges), "t.json"));
    EXPECT_EQ(encode(t, "ab abb"), kAbIds);
    EXPECT_EQ(t.end_of_text(), 258u);
    EXPECT_EQ(t.vocab_size(), 259);
  }
}

TEST(TokenizerFiles, AddedTokens) {
  const std::string root =
      R"("added_tokens":[{"id":300,"content":"<|endoftext|>","special":true},{"id":301,"content":"<p ad>"}],)"
      R"("pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"ByteLevel","add_prefix_space":false}]})";
  const BpeTokenizer t(
      parse_tokenizer_json(tokenizer_json(vocab_json(R"("ab":256)"), R"(["a b"])", "", root), "t.json"));
  EXPECT_EQ(t.vocab_size(), 302);
  EXPECT_EQ(t.end_of_text(), 300u);
  const TokenId ids[] = {301, 256, 299, 300};
  EXPECT_EQ(t.decode(ids), "<p ad>ab<|endoftext|>");
  EXPECT_EQ(t.decode(encode(t, "<p ad>")), "<p ad>");
  const auto folder = testing::fresh_folder();  // with its gap
  t.save(folder.string());
  const auto again = load_tokenizer(folder.string());
  EXPECT_EQ(again->vocab_size(), 302);
  EXPECT_EQ(again->end_of_text(), 300u);
  EXPECT_EQ(again->decode(ids), "<p ad>ab<|endoftext|>");
}

TEST(TokenizerFiles, MergesOfASpecialTokenAreDropped) {
  const std::string root = R"("added_tokens":[{"id":256,"content":"ab","special":true}],)"
                           R"("pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false})";
  const BpeTokenizer t(
      parse_tokenizer_json(tokenizer_json(vocab_json(kMore), R"(["a b","Ġ ab"])", "", root), "t.json"));
  EXPECT_EQ(encode(t, "ab"), (std::vector<TokenId>{'a', 'b'}));
}

TEST(TokenizerFiles, GptPatternSpelledOut) {
  const std::string root =
      R"("pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":)"
      R"("'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"},)"
      R"("behavior":"Isolated","invert":false},{"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]})";
  EXPECT_EQ(parse_tokenizer_json(tokenizer_json(vocab_json(kMore), "[]", "", root), "t.json").end_of_text,
            258u);
}

TEST(TokenizerFiles, EndOfTextIsFoundOrAdded) {
  const auto parse = [](const std::string& more, const std::string& wanted) {
    return parse_tokenizer_json(tokenizer_json(vocab_json(more), "[]"), "t.json", wanted);
  };
  EXPECT_EQ(parse(R"("<s>":256,"</s>":257)", "").end_of_text, 257u);
  EXPECT_EQ(parse(R"("<s>":256,"</s>":257)", "<s>").end_of_text, 256u);
  EXPECT_EQ(parse(R"("ab":256)", "<none>").end_of_text, 257u);  // added
}

TEST(TokenizerFiles, EveryPathForm) {
  const auto folder = testing::fresh_folder();
  const std::string merges = "#version: 0.2\na b\r\nĠ ab\n\n";
  const auto sub = [&](const char* name) {
    std::filesystem::create_directories(folder / name);
    return folder / name;
  };
  write_text(sub("hf") / "vocab.json", vocab_json(kMore));
  write_text(sub("hf") / "merges.txt", merges);
  write_text(sub("openai") / "encoder.json", vocab_json(kMore));
  write_text(sub("openai") / "vocab.bpe", merges);
  write_text(sub("prefixed") / "my-vocab.json", vocab_json(kMore));
  write_text(sub("prefixed") / "my-merges.txt", merges);
  write_text(sub("fast") / "tokenizer.json", tokenizer_json(vocab_json(kMore), R"(["a b","Ġ ab"])"));
  write_text(sub("fast") / "tokenizer_config.json", R"({"eos_token":{"content":"<|endoftext|>"}})");
  write_text(sub("ranks") / "mine.tiktoken", base64_ranks() + "IGFi 257\n");
  for (const char* path : {"hf", "hf/vocab.json", "hf/merges.txt", "openai", "openai/encoder.json",
                           "openai/vocab.bpe", "prefixed/my-vocab.json", "prefixed/my-merges.txt", "fast",
                           "fast/tokenizer.json", "ranks", "ranks/mine.tiktoken"}) {
    const auto t = load_tokenizer((folder / path).string());
    EXPECT_EQ(encode(*t, "ab abb"), kAbIds) << path;
    EXPECT_EQ(t->end_of_text(), 258u) << path;
  }
  write_text(folder / "ranks" / "second.tiktoken", base64_ranks());
  EXPECT_NE(error_of([&] { load_tokenizer((folder / "ranks").string()); }).find("second.tiktoken"),
            std::string::npos);
}

TEST(TokenizerFiles, TiktokenTakesTheFirstFreeIdForEndOfText) {
  const BpeVocabulary v = parse_tiktoken(base64_ranks() + "YWJj 258\n", "x.tiktoken");  // 257 is free
  EXPECT_EQ(v.end_of_text, 257u);
  EXPECT_EQ(v.tokens.size(), 259u);
  EXPECT_EQ(encode(BpeTokenizer(v), "abc ab"), (std::vector<TokenId>{258, ' ', 256}));
}

TEST(TokenizerFiles, TiktokenTokensAddedByHand) {
  // "aaaa" cannot come from two tokens of lower rank, so it is found only as a whole word.
  const BpeVocabulary v = parse_tiktoken(base64_ranks() + "YWFhYQ== 257\n", "x.tiktoken");
  EXPECT_TRUE(v.whole_words_first);
  const BpeTokenizer t(v);
  EXPECT_EQ(encode(t, "aaaa"), (std::vector<TokenId>{257}));
  EXPECT_EQ(encode(t, "aaaaa"), (std::vector<TokenId>{'a', 'a', 'a', 'a', 'a'}));
}

TEST(TokenizerFiles, PathErrors) {
  const auto folder = testing::fresh_folder();
  EXPECT_NE(error_of([&] { load_tokenizer((folder / "none").string()); }).find("found nothing there"),
            std::string::npos);
  EXPECT_NE(error_of([&] { load_tokenizer(folder.string()); }).find("found none of them"), std::string::npos);
  write_text(folder / "notes.txt", "hello");
  EXPECT_NE(error_of([&] { load_tokenizer((folder / "notes.txt").string()); }).find("another name"),
            std::string::npos);
  write_text(folder / "vocab.json", vocab_json(kMore));
  EXPECT_NE(error_of([&] {
              load_tokenizer((folder / "vocab.json").string());
            }).find("merges.txt: cannot be opened"),
            std::string::npos);
  write_text(folder / "cl100k_base.tiktoken", base64_ranks());
  EXPECT_NE(
      error_of([&] { load_tokenizer((folder / "cl100k_base.tiktoken").string()); }).find("GPT-2's pre-token"),
      std::string::npos);
  EXPECT_NE(
      error_of([&] { load_tokenizer("bytes")->save((folder / "notes.txt").string()); }).find("notes.txt"),
      std::string::npos);
}

TEST(TokenizerFiles, MalformedTokenizerJson) {
  const std::string vocab = vocab_json(kMore), merges = R"(["a b"])";
  const std::string good = tokenizer_json(vocab, merges);
  ASSERT_NO_THROW(parse_tokenizer_json(good, "t.json"));
  const std::pair<std::string, std::string> cases[] = {
      {"", "expected JSON"},
      {"[1,", "expected JSON"},
      {good.substr(0, good.size() / 2), "expected JSON"},
      {"[]", "a JSON object"},
      {"{}", "\"model\""},
      {R"({"model":7})", "\"model\" to be an object, found 7"},
      {R"({"model":{"type":"Unigram","vocab":[]}})",
       "byte-level BPE tokenizer (model.type \"BPE\"), found \"Unigram\""},
      {R"({"model":{"type":"WordPiece"}})", "found \"WordPiece\""},
      {tokenizer_json(vocab, merges, R"("byte_fallback":true,)"), "model.byte_fallback = true"},
      {tokenizer_json(vocab, merges, R"("dropout":0.1,)"), "model.dropout = 0.1"},
      {tokenizer_json(vocab, merges, R"("end_of_word_suffix":"</w>",)"), "</w>"},
      {tokenizer_json(vocab, merges, "", R"("pre_tokenizer":{"type":"Metaspace"})"), "Metaspace"},
      {tokenizer_json(vocab, merges, "", R"("pre_tokenizer":null)"), "pre_tokenizer"},
      {tokenizer_json(vocab, merges, "", R"("pre_tokenizer":{"type":"ByteLevel","add_prefix_space":true})"),
       "add_prefix_space"},
      {tokenizer_json(vocab, merges, "", R"("pre_tokenizer":{"type":"ByteLevel","use_regex":false})"),
       "the pattern of GPT-2"},
      {tokenizer_json(
           vocab, merges, "",
           R"("normalizer":{"type":"NFKC"},"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false})"),
       "expected no normalizer, or NFC alone"},
      {tokenizer_json("[]", merges), "object of token to id"},
      {tokenizer_json("{}", "[]"), "found none for byte 0x00 (0 of 256 are there)"},
      {tokenizer_json(vocab_json(R"("ab":-1)"), merges), "found -1"},
      {tokenizer_json(vocab_json(R"("ab":4000000000)"), merges), "found 4000000000"},
      {tokenizer_json(vocab_json(R"("ab":"x")"), merges), "found \"x\""},
      {tokenizer_json(vocab_json(R"("ab":2.5)"), merges), "found 2.5"},
      {tokenizer_json(vocab_json(R"("ab":97)"), "[]"), "id 97"},
      {tokenizer_json(vocab_json(R"("":300)"), "[]"), "empty one"},
      {tokenizer_json(vocab, "7"), "\"merges\" to be a list"},
      {tokenizer_json(vocab, R"(["a b","a b"])"), "merge 2: expected each merge once"},
      {tokenizer_json(vocab, R"(["ab"])"), "merge 1: expected two tokens"},
      {tokenizer_json(vocab, R"(["a b c"])"), "merge 1: expected two tokens"},
      {tokenizer_json(vocab, R"(["a c"])"), "found no 'ac'"},
      {tokenizer_json(vocab, R"([["a"]])"), "merge 1"},
      {tokenizer_json(vocab, R"([1])"), "merge 1"},
      {tokenizer_json(vocab, merges, "", R"("added_tokens":7,"pre_tokenizer":{"type":"ByteLevel"})"),
       "added_tokens"},
      {tokenizer_json(vocab, merges, "", R"("added_tokens":[{"id":1}],"pre_tokenizer":{"type":"ByteLevel"})"),
       "content"},
      {tokenizer_json(vocab, merges, "",
                      R"("added_tokens":[{"id":5,"content":"ab"}],"pre_tokenizer":{"type":"ByteLevel"})"),
       "vocabulary's id 256, found 5"},
  };
  for (const auto& [json, expected] : cases) {
    const std::string message = error_of([&text = json] { parse_tokenizer_json(text, "t.json"); });
    EXPECT_EQ(message.find("t.json"), 0u) << message;
    EXPECT_NE(message.find(expected), std::string::npos) << "expected '" << expected << "' in: " << message;
    EXPECT_LT(message.size(), 600u) << message;
  }
}

TEST(TokenizerFiles, MalformedMerges) {
  const auto error = [](const std::string& merges) {
    return error_of([&] { parse_vocab_and_merges(vocab_json(kMore), "vocab.json", merges, "merges.txt"); });
  };
  EXPECT_EQ(error("#version: 0.2\na b\na  b\n"),
            "merges.txt:3: expected two tokens with a space between them, found 'a  b'");
  EXPECT_NE(error("a q").find("merges.txt:1: "), std::string::npos);
  EXPECT_NE(error("a b\n#version: 0.2\n").find("merges.txt:2: "),
            std::string::npos);  // a header only at the top
  EXPECT_NE(error_of([] {
              parse_vocab_and_merges("{", "vocab.json", "", "merges.txt");
            }).find("vocab.json: expected JSON"),
            std::string::npos);
}

TEST(TokenizerFiles, MalformedTiktoken) {
  const auto error = [](const std::string& text) {
    return error_of([&] { parse_tiktoken(text, "x.tiktoken"); });
  };
  for (const char* line : {"YWI 1", "YWI= x", "YWI=", "YW=I 9", "=== 1", "YWI= -1",
                           "YWI= 99999999999999999999", "YWI= 2097152", "YWI= 1 2", " 1", "Y!I= 300"})
    EXPECT_NE(error(std::string(line) + "\n").find("x.tiktoken:1: expected a token in base64"),
              std::string::npos)
        << line;
  EXPECT_NE(error("").find("0 of 256"), std::string::npos);
  EXPECT_NE(error("QQ== 1\nQg== 1\n").find("x.tiktoken:2: expected each rank once, found 1 again"),
            std::string::npos);
  EXPECT_NE(error(base64_ranks() + "YWI= 300\n").find("each token once"), std::string::npos);
}

TEST(TokenizerFiles, SavingLeavesNothingElseBehind) {
  const auto folder = testing::fresh_folder();
  load_tokenizer("bytes")->save((folder / "deep" / "er").string());
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "deep" / "er"))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"tokenizer.json", "tokenizer_config.json"}));
}

}  // namespace
}  // namespace ddl
