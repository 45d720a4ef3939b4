#include "infer/generation.h"

#include <gtest/gtest.h>

#include "infer/text_stream.h"
#include "model/oracle_model.h"

namespace ddl {
namespace {

// --- text that streams

bool valid_utf8(std::string_view text) {
  TextStream stream({});
  return stream.push(text) == text && stream.finish().empty();
}

TEST(TextStream, HoldsCharactersBackUntilTheyAreWhole) {
  const std::string text = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z";  // one to four bytes
  for (std::size_t step = 1; step <= text.size(); ++step) {
    TextStream stream({});
    std::string shown;
    for (std::size_t i = 0; i < text.size(); i += step) {
      shown += stream.push(text.substr(i, step));
      EXPECT_TRUE(valid_utf8(shown)) << i;
    }
    EXPECT_EQ(shown + stream.finish(), text);
  }
}

TEST(TextStream, ReplacesWhatIsNoCharacter) {
  const auto whole = [](std::string_view bytes) {
    TextStream stream({});
    std::string shown;
    for (const char c : bytes) {
      shown += stream.push({&c, 1});
      EXPECT_TRUE(valid_utf8(shown));
    }
    return shown + stream.finish();
  };
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(whole("a\x80z"), "a" + r + "z");
  EXPECT_EQ(whole("\xC0\xAF"), r + r) << "an overlong slash";
  EXPECT_EQ(whole("\xED\xA0\x80"), r + r + r) << "a surrogate";
  EXPECT_EQ(whole("\xF4\x90\x80\x80"), r + r + r + r) << "beyond U+10FFFF";
  EXPECT_EQ(whole("\xE2\x82"), r) << "the end came too early";
  EXPECT_EQ(whole("\xE2\x82z"), r + "z");
  for (int seed = 0; seed < 200; ++seed) {  // any bytes
    const Random random(static_cast<std::uint64_t>(seed), "bytes");
    std::string bytes;
    for (std::uint64_t i = 0; i < 40; ++i) bytes += static_cast<char>(random.below(i, 256));
    EXPECT_TRUE(valid_utf8(whole(bytes)));
  }
}

TEST(TextStream, NeverShowsAnyPartOfAStopString) {
  const std::string text = "one two END three";
  for (std::size_t step : {1, 2, 3, 5, 40}) {
    TextStream stream({"", "ENDS", "END"});
    std::string shown;
    for (std::size_t i = 0; i < text.size() && !stream.stopped(); i += step) {
      shown += stream.push(text.substr(i, step));
      EXPECT_EQ(shown.find('E'), std::string::npos) << step;
    }
    EXPECT_TRUE(stream.stopped());
    EXPECT_EQ(shown + stream.finish(), "one two ");
  }
  TextStream stream({"END"});
  EXPECT_EQ(stream.push("the EN"), "the ");
  EXPECT_EQ(stream.push("GLISH"), "ENGLISH");
  EXPECT_EQ(stream.push("E"), "");
  EXPECT_EQ(stream.finish(), "E") << "it did not become one";
}

// --- generation with a model whose tokens are letters

class Letters final : public Tokenizer {
 public:
  void encode(std::string_view text, std::vector<TokenId>& ids) const override {
    for (const char c : text) ids.push_back(static_cast<TokenId>(static_cast<unsigned char>(c) % 9));
  }
  std::string decode(std::span<const TokenId> ids) const override {
    std::string text;
    for (const TokenId id : ids)
      if (id < 9) text += static_cast<char>('a' + id);
    return text;
  }
  Index vocab_size() const override { return 10; }  // the model's is 11: one id is padding
  TokenId end_of_text() const override { return 9; }
  std::string name() const override { return "letters"; }
  void save(const std::string&) const override {}
};

struct Outcome {
  std::vector<Generation> texts;
  std::vector<std::string> streamed;
  std::vector<std::string> notices;
};

Outcome run(Index slots, Index count, GenerateOptions options, const std::string& prompt = "hello",
            const std::string& residual = "ddl-tc") {
  const Exec ex{.threads = 2};
  const Weights weights = scrambled_weights(model_config({.residual = residual}));
  const auto decoder = make_decoder(weights, {.slots = slots}, ex);
  Outcome r;
  r.streamed.resize(static_cast<std::size_t>(count));
  const auto text = [&](Index i, std::string_view piece) { r.streamed[i] += piece; };
  const auto notice = [&](const std::string& s) { r.notices.push_back(s); };
  r.texts = generate(*decoder, Letters(), prompt, count, options, {text, notice}, ex);
  return r;
}

TEST(Generate, StreamsWhatItReturnsAndRepeatsItself) {
  const GenerateOptions options{.max_new_tokens = 9, .sampling = {.temperature = 1.5, .seed = 3}};
  const Outcome a = run(3, 7, options), b = run(3, 7, options);
  ASSERT_EQ(a.texts.size(), 7u);
  bool some_differ = false;
  for (std::size_t i = 0; i < 7; ++i) {
    EXPECT_EQ(a.texts[i].text, a.streamed[i]);
    EXPECT_EQ(a.texts[i].text, b.texts[i].text);
    EXPECT_EQ(a.texts[i].prompt_tokens, 6) << "end of text and five letters";
    EXPECT_TRUE(a.texts[i].ended == "length" || a.texts[i].ended == "end of text") << a.texts[i].ended;
    some_differ = some_differ || a.texts[i].text != a.texts[0].text;
  }
  EXPECT_TRUE(some_differ) << "texts of one seed are different texts";
  // Alone or in company: the same texts.
  const Outcome one_by_one = run(1, 7, options), together = run(7, 7, options);
  for (std::size_t i = 0; i < 7; ++i) {
    EXPECT_EQ(one_by_one.texts[i].text, a.texts[i].text);
    EXPECT_EQ(together.texts[i].text, a.texts[i].text);
  }
}

TEST(Generate, StopsAtAStopString) {
  GenerateOptions options{.max_new_tokens = 10, .sampling = {.temperature = 0}};
  const std::string text = run(1, 1, options).texts[0].text;
  ASSERT_GE(text.size(), 3u);
  options.stop = {text.substr(2, 1)};
  const Generation stopped = run(1, 1, options).texts[0];
  EXPECT_EQ(stopped.ended, "stop string");
  EXPECT_EQ(stopped.text, text.substr(0, text.find(options.stop[0])));
}

TEST(Generate, AFullContextEndsTheTextOrSlides) {
  GenerateOptions options{
      .max_new_tokens = 60, .sampling = {.temperature = 1.5, .seed = 5}, .stop = {}, .slide = false};
  Outcome r;
  for (options.sampling.seed = 0; options.sampling.seed < 50; ++options.sampling.seed) {
    r = run(1, 1, options);
    if (r.texts[0].ended == "context") break;
  }
  ASSERT_EQ(r.texts[0].ended, "context") << "16 tokens are soon full";
  EXPECT_EQ(r.texts[0].new_tokens, 16 - 6 + 1);
  ASSERT_EQ(r.notices.size(), 1u);
  EXPECT_NE(r.notices[0].find("16 tokens"), std::string::npos);
  options.slide = true;
  const Outcome slid = run(1, 1, options);
  EXPECT_EQ(slid.texts[0].text.substr(0, r.texts[0].text.size()), r.texts[0].text) << "the same until then";
  EXPECT_GT(slid.texts[0].new_tokens, r.texts[0].new_tokens);
  EXPECT_GE(slid.notices.size(), 1u);
  EXPECT_NE(slid.notices[0].find("continuing with the last 8"), std::string::npos);
}

TEST(Generate, PromptsOfAnyLength) {
  const GenerateOptions options{.max_new_tokens = 2, .sampling = {.temperature = 0}};
  EXPECT_EQ(run(1, 1, options, "").texts[0].prompt_tokens, 1);
  EXPECT_EQ(run(1, 1, options, std::string(15, 'x')).texts[0].prompt_tokens, 16);
  EXPECT_THROW(run(1, 1, options, std::string(16, 'x')), UserError);
  GenerateOptions slide = options;
  slide.slide = true;
  EXPECT_EQ(run(1, 1, slide, std::string(16, 'x')).notices.size(), 1u);
  GenerateOptions none = options;
  none.max_new_tokens = 0;
  EXPECT_EQ(run(1, 2, none).texts[1].ended, "length");
}

}  // namespace
}  // namespace ddl
