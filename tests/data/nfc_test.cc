// Form C: cases of the Unicode standard, text that has the form already, bytes that are no text, cuts; and tokenizers that
// ask for it.
#include "data/nfc.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "core/rng.h"
#include "data/answer_marks.h"
#include "data/bpe.h"
#include "data/bpe_parse.h"
#include "data/corpus.h"
#include "data/dataset.h"
#include "data/prepare.h"
#include "data/text_cut.h"
#include "test_folder.h"
#include "tokenizer_testing.h"

namespace ddl {
namespace {

std::string nfc(std::string_view text) {
  std::string buffer = "left over";
  return std::string(to_nfc(text, buffer));
}

bool is_nfc(std::string_view text) {  // and was not copied
  std::string buffer;
  return to_nfc(text, buffer).data() == text.data();
}

TEST(Nfc, ChangesWhatTheStandardSays) {
  const std::pair<const char*, const char*> cases[] = {
      {"e\u0301", "\u00e9"},                          // composition
      {"xe\u0301y e\u0301", "x\u00e9y \u00e9"},       // several, with text between them
      {"\u212b", "\u00c5"},                           // singletons: angstrom, ohm, Greek question mark
      {"\u2126;\u037e", "\u03a9;;"},                  //
      {"\uf900", "\u8c48"},                           // a compatibility ideograph
      {"\U0002f800", "\u4e3d"},                       // and one of plane 2
      {"a\u0323\u0302", "\u1ead"},                    // two marks that combine one after the other
      {"a\u0302\u0323", "\u1ead"},                    // in the other order
      {"\u00e2\u0323", "\u1ead"},                     // onto what is composed already
      {"q\u0307\u0323", "q\u0323\u0307"},             // only reordered
      {"a\u0301\u0301", "\u00e1\u0301"},              // the second is blocked
      {"a\u0345\u0301\u0323", "\u1ea1\u0301\u0345"},  // three classes
      {"\u1112\u1161\u11ab", "\ud55c"},               // Hangul: leading consonant, vowel, trailing consonant
      {"\ud558\u11ab", "\ud55c"},                     // a syllable and a trailing consonant
      {"\u1112\u1161\u11ab\u1100\u1173\u11af", "\ud55c\uae00"},
      {"\uac00\u11a7\u0301\u0323", "\uac00\u11a7\u0323\u0301"},  // U+11A7 is no trailing consonant
      {"\u0958", "\u0915\u093c"},                                // excluded from composition
      {"\u0344", "\u0308\u0301"},                                // a mark that becomes two
      {"\u0301\u0323x", "\u0323\u0301x"},                        // marks without a letter
      {"<\u0338", "\u226e"},                                     // signs combine too
      {"\U00011099\U000110ba", "\U0001109a"},                    // above U+FFFF
  };
  for (const auto& [text, expected] : cases) {
    EXPECT_EQ(nfc(text), expected) << text;
    EXPECT_EQ(nfc(expected), expected) << text;
    EXPECT_EQ(nfc(std::string("plain ") + text + " plain"), std::string("plain ") + expected + " plain");
  }
}

TEST(Nfc, TextThatHasTheFormIsNotCopied) {
  for (const char* text : {"", "plain ASCII, and more of it than eight bytes", "d\u00e9j\u00e0 vu",
                           "\uc548\ub155\ud558\uc138\uc694", "\u4eca\u5929\u5929\u6c14\u5f88\u597d",
                           "q\u0323\u0307", "\u0e01\u0e38\u0e48", "\u05d0\u05b8\u05bc", "\uac00\u11a7",
                           "\u0915\u093c", "\U0001f642\u200d", "x\u0301\u0345", "\U0010fffd\U000e0041"})
    EXPECT_TRUE(is_nfc(text)) << text;
}

// A byte that is not UTF-8 is a character of its own: what is valid around it has the form, nothing combines across it.
TEST(Nfc, BytesThatAreNoTextStay) {
  for (const std::string bad : {"\xff", "\x80", "\xc3", "\xe4\xb8", "\xf0\x9f\x99", "\xc0\x80",
                                "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xcc"}) {
    EXPECT_TRUE(is_nfc(bad));
    EXPECT_EQ(nfc("e\u0301" + bad + "e\u0301"), "\u00e9" + bad + "\u00e9");
    EXPECT_EQ(nfc("e" + bad + "\u0301"), "e" + bad + "\u0301");
    EXPECT_EQ(nfc("e" + bad + "\u0301\u0323"), "e" + bad + "\u0323\u0301");
  }
  EXPECT_EQ(nfc(std::string("e\u0301\0e\u0301", 7)), std::string("\u00e9\0\u00e9", 5));
  EXPECT_EQ(nfc("e\xcc"), "e\xcc") << "half a mark at the end";
}

// Random strings of letters and marks, valid and not.
std::string random_marks(std::uint64_t seed) {
  static const std::uint32_t pool[] = {'a',     'e',     'o',    '<',    ' ',    0xe2,  0x1ea1, 0x301,
                                       0x323,   0x302,   0x308,  0x327,  0x345,  0x338, 0x212b, 0x1100,
                                       0x1161,  0x11a8,  0x11a7, 0xac00, 0xd558, 0x915, 0x93c,  0x958,
                                       0x11099, 0x110ba, 0x4e2d, 0x344,  0x0b47, 0x0b56};
  const Random random(seed, "nfc");
  std::string text;
  for (std::uint64_t i = 0, n = 1 + random.bits(0) % 12; i < n; ++i) {
    const std::uint64_t bits = random.bits(i + 1);
    if (bits % 31 == 30)
      text += static_cast<char>(bits >> 32);
    else
      testing::append_utf8(text, pool[bits % 31 % std::size(pool)]);
  }
  return text;
}

TEST(Nfc, IsTheSameWhenDoneAgainOrInParts) {
  Index cuts = 0;
  for (std::uint64_t seed = 0; seed < 20000; ++seed) {
    const std::string text = random_marks(seed), whole = nfc(text);
    ASSERT_TRUE(is_nfc(whole)) << text;
    for (std::size_t at = 0; at <= text.size(); ++at) {
      if (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) continue;
      if (!can_cut_nfc(text, at)) continue;
      ++cuts;
      ASSERT_EQ(nfc(text.substr(0, at)) + nfc(text.substr(at)), whole) << text << " at " << at;
    }
  }
  EXPECT_GT(cuts, 50000);
  EXPECT_FALSE(can_cut_nfc("e\u0301", 1));
  EXPECT_FALSE(can_cut_nfc("\u1112\u1161", 3));
}

TEST(Nfc, ManyMarksOnOneLetterTakeNoQuadraticTime) {
  std::string text = "a", low, high;
  for (int i = 0; i < 200000; ++i) text += "\u0301\u0323", low += "\u0323", high += "\u0301";
  const auto start = std::chrono::steady_clock::now();
  const std::string result = nfc(text);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  EXPECT_EQ(result, "\u1ea1" + low.substr(2) + high);
}

// Bytes, and a merge that makes one token of \u00e9.
BpeVocabulary accent_vocabulary() {
  BpeVocabulary v = byte_vocabulary();
  v.tokens.insert(v.tokens.begin() + 256, "\u00e9");
  v.merges = {{0xc3, 0xa9, 256}};
  v.specials = {257};
  v.end_of_text = 257;
  v.words = WordPattern::kQwen2;
  v.nfc = true;
  return v;
}

TEST(NfcTokenizer, EncodesTheNormalisedText) {
  const BpeTokenizer tokenizer(accent_vocabulary());
  EXPECT_EQ(tokenizer.name(), "qwen2-style bpe, 258 tokens, NFC");
  EXPECT_EQ(testing::encode(tokenizer, "e\u0301"), (std::vector<TokenId>{256}));
  EXPECT_EQ(testing::encode(tokenizer, "\u00e9e\u0301e"), (std::vector<TokenId>{256, 256, 'e'}));
  EXPECT_EQ(tokenizer.decode(testing::encode(tokenizer,
                                             "\u212b\xff"
                                             "e\u0301")),
            "\u00c5\xff\u00e9");
  // Letters are words with their marks only where they are one character.
  BpeVocabulary plain = accent_vocabulary();
  plain.nfc = false;
  EXPECT_EQ(testing::encode(BpeTokenizer(plain), "e\u0301"), (std::vector<TokenId>{'e', 0xcc, 0x81}));
  BpeVocabulary bytes = byte_vocabulary();
  bytes.nfc = true;
  EXPECT_EQ(BpeTokenizer(bytes).name(), "bytes, NFC");
  EXPECT_EQ(testing::encode(BpeTokenizer(bytes), "e\u0301"), (std::vector<TokenId>{0xc3, 0xa9}));
}

TEST(NfcTokenizer, ComesBackFromItsFile) {
  const TestFolder folder;
  BpeTokenizer(accent_vocabulary()).save(folder.path());
  const Json json = parse_json(contents_of(folder / "tokenizer.json"));
  EXPECT_EQ(json["normalizer"], Json({{"type", "NFC"}}));
  EXPECT_EQ(json["added_tokens"][0]["normalized"], false);
  const auto again = load_tokenizer(folder.path());
  EXPECT_EQ(again->name(), "qwen2-style bpe, 258 tokens, NFC");
  EXPECT_EQ(testing::encode(*again, "e\u0301"), (std::vector<TokenId>{256}));
  again->save(folder / "twice");
  EXPECT_EQ(contents_of(folder / "twice/tokenizer.json"), contents_of(folder / "tokenizer.json"));
}

TEST(NfcTokenizer, OtherNormalizersAreRefusedByName) {
  const TestFolder folder;
  BpeTokenizer(accent_vocabulary()).save(folder.path());
  Json json = parse_json(contents_of(folder / "tokenizer.json"));
  const auto with = [&](const char* normalizer) {
    json["normalizer"] = parse_json(normalizer);
    return to_line(json);
  };
  for (const char* good : {R"({"type":"NFC"})", R"({"type":"Sequence","normalizers":[{"type":"NFC"}]})"})
    EXPECT_TRUE(parse_tokenizer_json(with(good), "t.json").nfc) << good;
  EXPECT_FALSE(parse_tokenizer_json(with("null"), "t.json").nfc);
  const std::pair<const char*, const char*> cases[] = {
      {R"({"type":"NFKC"})", "NFKC"},
      {R"({"type":"NFD"})", "NFD"},
      {R"({"type":"Lowercase"})", "Lowercase"},
      {R"({"type":"Replace","pattern":{"String":" "},"content":"_"})", "Replace"},
      {R"({"type":"nfc"})", "nfc"},
      {R"({"type":["NFC"]})", "NFC"},
      {R"({"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Lowercase"}]})", "Lowercase"},
      {R"({"type":"Sequence","normalizers":[{"type":"NFKC"}]})", "NFKC"},
      {R"({"type":"Sequence","normalizers":[{"type":"Sequence","normalizers":[{"type":"NFC"}]}]})",
       "Sequence"},
      {R"({"type":"Sequence","normalizers":[]})", "Sequence"},
      {R"({"type":"Sequence","normalizers":{"type":"NFC"}})", "Sequence"},
      {R"({"type":"Sequence"})", "Sequence"},
      {R"(["NFC"])", "NFC"},
      {R"("NFC")", "NFC"},
      {"true", "true"},
      {"7", "7"},
      {"{}", "{}"},
  };
  for (const auto& [normalizer, name] : cases) {
    const std::string message =
        testing::error_of([&, text = with(normalizer)] { parse_tokenizer_json(text, "t.json"); });
    EXPECT_TRUE(message.starts_with("t.json: expected no normalizer, or NFC alone")) << message;
    EXPECT_NE(message.find(name, message.find("found ")), message.npos) << message;
  }
}

// As Hugging Face does it: before normalising, unless the token says "normalized": true.
TEST(NfcTokenizer, EndOfTextIsFoundBeforeOrAfter) {
  // '>' and U+0338 are one sign in form C
  const std::string text = "e\u0301<|endoftext|>\u0338e\u0301<|endoftext|>";
  const auto ids = [&](const Tokenizer& tokenizer) {
    std::vector<TokenId> found;
    encode_with_end_of_text(tokenizer, text, found);
    return found;
  };
  const BpeTokenizer before(accent_vocabulary());
  EXPECT_EQ(ids(before), (std::vector<TokenId>{256, 257, 0xcc, 0xb8, 256, 257}));
  BpeVocabulary vocabulary = accent_vocabulary();
  vocabulary.normalized = {257};
  const BpeTokenizer after(vocabulary);
  const std::vector<TokenId> expected = ids(after);
  EXPECT_EQ(std::count(expected.begin(), expected.end(), 257u), 1);
  EXPECT_EQ(after.decode(expected), "\u00e9<|endoftext|\u226f\u00e9<|endoftext|>");
  const TestFolder folder;
  after.save(folder.path());
  EXPECT_EQ(parse_json(contents_of(folder / "tokenizer.json"))["added_tokens"][0]["normalized"], true);
  EXPECT_EQ(ids(*load_tokenizer(folder.path())), expected);
}

// Nothing to cut at, and a letter and its mark across the place where the reader must cut.
TEST(NfcTokenizer, PiecesOfALongDocumentGiveTheTokensOfTheWhole) {
  const BpeTokenizer tokenizer(accent_vocabulary());
  const TestFolder folder;
  for (const std::string shift : {"", "x", "xx"}) {
    std::string text;
    while (text.size() < kMaxPieceBytes - 1000) text += "some ordinary words ";
    text += shift;
    while (text.size() < kMaxPieceBytes + 1000) text += "e\u0301";
    const std::size_t cut = piece_end(std::string_view(text).substr(0, kMaxPieceBytes));
    ASSERT_LT(cut, kMaxPieceBytes);
    EXPECT_EQ(text[cut], 'e') << shift;
    CorpusReader reader({folder.write("x.txt", text)}, {});
    std::vector<TokenId> pieces;
    Index count = 0;
    for (Document piece; reader.next(piece); ++count) tokenizer.encode(piece.text, pieces);
    EXPECT_GE(count, 2);
    EXPECT_EQ(pieces, testing::encode(tokenizer, text));
  }
  std::string marks = "e";  // no place at all: cut anyway, between two characters
  while (marks.size() < kMaxPieceBytes) marks += "\u0301";
  const std::size_t cut = piece_end(marks);
  EXPECT_GT(cut, kMaxPieceBytes - 16);
  EXPECT_EQ(marks[cut], '\xcc');
}

TEST(NfcTokenizer, DatasetsKeepItAndFindAnswers) {
  const TestFolder folder;
  const BpeTokenizer tokenizer(accent_vocabulary());
  // The answer is "e\u0301" at bytes 7 to 10, and 6 to 8 of the normalised text. U+0958 grows as much as the others shrink.
  const std::string row = "{\"text\":\"e\u0301 ab e\u0301 e\u0301 \u0958\",\"answers\":[[7,10]]}\n";
  PrepareOptions options;
  options.inputs = {folder.write("x.jsonl", row)};
  options.out = folder / "data";
  options.val_fraction = 0;
  prepare_dataset(options, tokenizer, Exec{});
  const Dataset data = Dataset::open(folder / "data", Exec{});
  EXPECT_EQ(load_tokenizer(data.tokenizer_path())->name(), tokenizer.name());
  std::vector<TokenId> tokens(static_cast<std::size_t>(data.train().tokens()));
  std::vector<std::uint8_t> answers(tokens.size());
  data.train().read(0, std::ssize(tokens), tokens.data());
  data.train().read_answers(0, std::ssize(tokens), answers.data());
  ASSERT_EQ(tokenizer.decode(std::span(tokens).subspan(1)), "\u00e9 ab \u00e9 \u00e9 \u0915\u093c");
  for (std::size_t t = 0; t < tokens.size(); ++t) EXPECT_EQ(answers[t], t == 6 ? 1 : 0) << t;
}

TEST(NfcTokenizer, AnswersInsideACharacterGetAllOfIt) {
  const std::string text = "\u212b e\u0301x";  // 3 bytes, 1, 1 and 2, 1; in form C 2, 1, 2, 1
  const auto moved = [&](Index begin, Index end) {
    const ByteSpan answer{begin, end};
    const std::vector<ByteSpan> found = answers_in_nfc(text, {&answer, 1});
    return std::pair(found.at(0).begin, found.at(0).end);
  };
  EXPECT_EQ(moved(0, 8), std::pair(Index{0}, Index{6}));
  EXPECT_EQ(moved(4, 7), std::pair(Index{3}, Index{5}));
  EXPECT_EQ(moved(5, 6), std::pair(Index{3}, Index{5}));
  EXPECT_EQ(moved(1, 2), std::pair(Index{0}, Index{2}));
  EXPECT_EQ(moved(7, 8), std::pair(Index{5}, Index{6}));
  const std::vector<ByteSpan> several = {{5, 6}, {0, 8}, {1, 4}};  // in any order, one inside another
  std::vector<std::pair<Index, Index>> found;
  for (const ByteSpan& answer : answers_in_nfc(text, several)) found.emplace_back(answer.begin, answer.end);
  EXPECT_EQ(found, (std::vector<std::pair<Index, Index>>{{3, 5}, {0, 6}, {0, 3}}));
}

}  // namespace
}  // namespace ddl
