// Loss and perplexity of text and of token shards against plain sums over the model's own losses.
#include "eval/language.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>

#include "data/loader.h"
#include "eval/python_words.h"
#include "eval/rolling_windows.h"
#include "model/oracle_model.h"
#include "test_folder.h"

namespace ddl {
namespace {

using Ids = std::vector<std::int32_t>;

std::vector<std::pair<Ids, Ids>> windows(Index L, Index n) {
  std::vector<std::pair<Ids, Ids>> out;
  RollingWindows rolling(0, L);
  const auto emit = [&](ScoreRequest r) { out.emplace_back(r.context, r.continuation); };
  for (Index t = 1; t <= n; ++t) rolling.add(static_cast<std::int32_t>(t), emit);
  rolling.finish(emit);
  return out;
}

TEST(RollingWindows, AreTheHarnesss) {
  using W = std::vector<std::pair<Ids, Ids>>;
  EXPECT_EQ(windows(4, 10), (W{{{0}, {1, 2, 3, 4}}, {{4}, {5, 6, 7, 8}}, {{6, 7, 8}, {9, 10}}}));
  EXPECT_EQ(windows(4, 3), (W{{{0}, {1, 2, 3}}}));
  EXPECT_EQ(windows(4, 8), (W{{{0}, {1, 2, 3, 4}}, {{4}, {5, 6, 7, 8}}}));
  EXPECT_EQ(windows(4, 5), (W{{{0}, {1, 2, 3, 4}}, {{1, 2, 3, 4}, {5}}}));
  EXPECT_EQ(windows(1, 2), (W{{{0}, {1}}, {{1}, {2}}}));
  EXPECT_EQ(windows(4, 0), W{});
}

// len(re.split(r"\s+", text)), by Python.
TEST(PythonWords, CountLikePython) {
  const std::vector<std::pair<std::string, Index>> cases = {
      {"", 1},
      {"word", 1},
      {"two words", 2},
      {" both ends ", 4},
      {"a \t\r\n\v\f b", 2},
      {"\n", 2},
      {"a\x1c"
       "b\x1f"
       "c",
       3},
      {"a\u00a0b\u0085c", 3},
      {"a\u1680b\u2003c\u2028d\u202fe\u205ff\u3000g", 7},
      {"a\u200bb\u00e9c\ufeffd", 1},
      {"no\xff\xc2", 1}};
  for (const auto& [text, words] : cases) {
    PythonWords count;
    count.add(text);
    EXPECT_EQ(count.count(), words) << text;
  }
  PythonWords pieces;
  for (const char* piece : {"a b ", " c", "", "d "}) pieces.add(piece);
  EXPECT_EQ(pieces.count(), 4) << "a, b, cd and what lies behind the last space";
}

// Three units by hand: R = 12/6; residuals 1, 0, -1.
TEST(RatioEstimate, IsTheTextbooks) {
  RatioEstimate r;
  r.add(3, 1);
  EXPECT_FALSE(r.estimate().error.has_value());
  r.add(4, 2), r.add(5, 3);
  EXPECT_DOUBLE_EQ(r.estimate().value, 2);
  EXPECT_NEAR(*r.estimate().error, std::sqrt(3.0 / 2 * 2) / 6, 1e-15);
}

class Language : public testing::Test {
 protected:
  Language() {
    config_.layers = 2, config_.width = 16, config_.heads = 2, config_.vocab = 260, config_.context = 24;
    config_.precision = Precision::kF32;
    weights_.emplace(config_, 3, Exec{});
    tokenizer_ = load_tokenizer("bytes");
  }

  // Sum of -log p over the last `scored` of the tokens, by the plain forward pass.
  double loss(const Ids& tokens, Index scored) {
    const Index n = std::ssize(tokens) - 1;
    std::unique_ptr<TrainableModel>& whole = whole_[n];
    if (!whole) whole = trainable(config_, {1, n}, 3);
    std::vector<float> loss_N(static_cast<std::size_t>(n));
    whole->loss({tokens.data(), tokens.data() + 1}, {loss_N.data(), nullptr}, Exec{});
    double sum = 0;
    for (Index t = n - scored; t < n; ++t) sum += loss_N[t];
    return sum;
  }
  double text_loss(const std::string& text) {
    std::vector<TokenId> ids;
    tokenizer_->encode(text, ids);
    RollingWindows rolling(static_cast<std::int32_t>(tokenizer_->end_of_text()), config_.context);
    double sum = 0;
    const auto add = [&](ScoreRequest r) {
      Ids all = r.context;
      all.insert(all.end(), r.continuation.begin(), r.continuation.end());
      sum += loss(all, std::ssize(r.continuation));
    };
    for (const TokenId id : ids) rolling.add(static_cast<std::int32_t>(id), add);
    rolling.finish(add);
    return sum;
  }
  LanguageReport evaluate(const std::string& path, Index limit = 0) {
    LanguageOptions options;
    options.limit = limit;
    Scorer scorer(*weights_, {}, Exec{.threads = 2});
    return evaluate_language(scorer, tokenizer_.get(), path, options, Exec{.threads = 2});
  }
  std::string error(const std::string& path) {
    try {
      evaluate(path);
    } catch (const UserError& e) {
      return e.what();
    }
    return "";
  }

  TestFolder folder_;
  ModelConfig config_;
  std::optional<Weights> weights_;
  std::map<Index, std::unique_ptr<TrainableModel>> whole_;  // the same model, by the length of a sequence
  std::unique_ptr<Tokenizer> tokenizer_;
};

// A float's rounding per token, summed.
constexpr double kRelative = 1e-5;

TEST_F(Language, ScoresDocumentsInRollingWindows) {
  const std::vector<std::string> texts = {"The quick brown fox jumps over the lazy dog, twice.", "short",
                                          "  A na\u00efve caf\u00e9, with\tsome\nwhite space \u2003 in it. "};
  std::string lines;
  double sum = 0;
  Index bytes = 0;
  RatioEstimate per_token;
  for (const std::string& text : texts) {
    Json row;
    row["text"] = text;
    lines += row.dump() + "\n";
    const double one = text_loss(text);
    sum += one, bytes += std::ssize(text);
    per_token.add(one, static_cast<double>(text.size()));
  }
  folder_.write("rows.jsonl", lines);
  const LanguageReport report = evaluate(folder_ / "rows.jsonl");
  EXPECT_EQ(report.documents, 3);
  EXPECT_EQ(report.tokens, bytes) << "a token is a byte";
  EXPECT_EQ(report.bytes, bytes);
  EXPECT_EQ(report.words, 10 + 1 + 11) << "white space at both ends of the last";
  EXPECT_EQ(report.windows, 3 + 1 + 3);
  EXPECT_NEAR(report.log_likelihood / -sum, 1, kRelative);
  const double n = static_cast<double>(bytes);
  EXPECT_NEAR(report.loss.value / (sum / n), 1, kRelative);
  EXPECT_NEAR(*report.loss.error / *per_token.estimate().error, 1, 1e-3);
  EXPECT_NEAR(std::log(report.perplexity.value), report.loss.value, 1e-12);
  EXPECT_NEAR(report.bits_per_byte->value, report.loss.value / std::log(2.0), 1e-12) << "a token is a byte";
  EXPECT_NEAR(std::log(report.word_perplexity->value), -report.log_likelihood / 22, 1e-12);
  // Mutant: windows that all begin anew are far outside.
  EXPECT_GT(std::abs(report.log_likelihood / -(sum + 0.1) - 1), kRelative);

  const LanguageReport first = evaluate(folder_ / "rows.jsonl", 1);
  EXPECT_EQ(first.documents, 1);
  EXPECT_NEAR(first.log_likelihood / -text_loss(texts[0]), 1, kRelative);
  EXPECT_TRUE(first.loss.error.has_value()) << "over its windows";
  EXPECT_NEAR(*first.bits_per_byte->error, *first.loss.error / std::log(2.0), 1e-12);

  const Json json = report.json();
  for (const char* key :
       {"loss", "loss_stderr", "perplexity", "bits_per_byte", "bits_per_byte_stderr", "byte_perplexity",
        "word_perplexity", "word_perplexity_stderr", "tokens", "log_likelihood"})
    EXPECT_TRUE(json.at(key).is_number()) << key;
  EXPECT_NE(report.table().find("bits per byte"), std::string::npos);
}

// Documents too long for one call of the scorer, and ends of others in the same call: each is counted once.
TEST_F(Language, LongDocumentsPassThroughInParts) {
  config_.layers = 1, config_.width = 8, config_.context = 64;
  weights_.emplace(config_, 3, Exec{});
  std::string lines;
  RatioEstimate per_token, per_word;
  double sum = 0;
  Index bytes = 0;
  for (const std::size_t size : {10000, 18000, 300}) {
    std::string text;
    PythonWords words;
    for (std::size_t i = 0; text.size() < size; ++i) text += fmt::format("line {} of {}\n", i, size);
    words.add(text);
    Json row;
    row["text"] = text;
    lines += row.dump() + "\n";
    const double one = text_loss(text);
    sum += one, bytes += std::ssize(text);
    per_token.add(one, static_cast<double>(text.size()));
    per_word.add(one, static_cast<double>(words.count()));
  }
  const LanguageReport report = evaluate(folder_.write("rows.jsonl", lines));
  EXPECT_EQ(report.documents, 3);
  EXPECT_EQ(report.tokens, bytes);
  EXPECT_EQ(report.bytes, bytes);
  EXPECT_NEAR(report.log_likelihood / -sum, 1, kRelative);
  EXPECT_NEAR(*report.loss.error / *per_token.estimate().error, 1, 1e-3);
  EXPECT_NEAR(*report.word_perplexity->error / report.word_perplexity->value / *per_word.estimate().error, 1,
              1e-3);
}

// The windows and the loss of training's validation.
TEST_F(Language, ShardsAreScoredInTheWindowsOfTraining) {
  const Index n = 24 * 9 + 5;
  std::vector<TokenId> stream(n);
  const Ids drawn = tokens(n, 5, config_.vocab);
  std::copy(drawn.begin(), drawn.end(), stream.begin());
  const auto write_shard = [&](const std::string& name, std::span<const TokenId> part) {
    ShardWriter writer(folder_ / name, 2);
    writer.write(part);
    writer.finish();
  };
  write_shard("x_val_000000.bin", std::span(stream).first(100));
  write_shard("x_val_000001.bin", std::span(stream).subspan(100));
  write_shard("x_train_000001.bin", std::span(stream).first(30));
  for (Index limit : {0, 4}) {
    std::vector<TokenShard> shards;
    shards.emplace_back(folder_ / "x_val_000000.bin"), shards.emplace_back(folder_ / "x_val_000001.bin");
    const TokenStream truth(std::move(shards));
    const FixedWindows fixed(truth, std::nullopt, config_.context, limit > 0 ? limit : 1000);
    double sum = 0;
    RatioEstimate estimate;
    for (Index i = 0; i < fixed.count(); ++i) {
      Batch batch;
      fixed.load(i, 1, batch);
      Ids all(batch.inputs_BT.begin(), batch.inputs_BT.end());
      all.push_back(batch.targets_BT.back());
      const double one = loss(all, config_.context);
      sum += one;
      estimate.add(one, static_cast<double>(config_.context));
    }
    const LanguageReport report = evaluate(folder_.path(), limit);
    EXPECT_EQ(report.kind, "tokens");
    EXPECT_EQ(report.windows, limit > 0 ? limit : 9);
    EXPECT_NEAR(report.loss.value / (sum / static_cast<double>(report.tokens)), 1, kRelative);
    EXPECT_NEAR(*report.loss.error / *estimate.estimate().error, 1, 1e-3);
    EXPECT_FALSE(report.bits_per_byte.has_value());
  }
  EXPECT_EQ(evaluate(folder_ / "x_val_000001.bin").windows, 5) << "one shard";
}

TEST_F(Language, ShardsNeedNoTokenizer) {
  const std::vector<TokenId> tokens(60, 7);
  ShardWriter writer(folder_ / "x.bin", 2);
  writer.write(tokens);
  writer.finish();
  const std::string text = folder_.write("x.txt", "text");
  EXPECT_TRUE(holds_token_shards(folder_ / "x.bin"));
  EXPECT_FALSE(holds_token_shards(text));
  const double loss = evaluate(folder_ / "x.bin").loss.value;
  tokenizer_.reset();
  EXPECT_EQ(evaluate(folder_ / "x.bin").loss.value, loss);
  EXPECT_TRUE(contains(error(text), "x.txt: text needs a tokenizer"));
}

TEST_F(Language, SaysWhatIsWrong) {
  EXPECT_NE(error(folder_ / "absent").find("absent: no such file or folder"), std::string::npos);
  folder_.write("blank.txt", " \n ");
  EXPECT_NE(error(folder_ / "blank.txt").find("no text in it"), std::string::npos);
  const std::vector<TokenId> few = {1, 2, 3}, strange(40, 270);
  const auto write_shard = [&](const std::string& path, const std::vector<TokenId>& tokens) {
    ShardWriter writer(path, 2);
    writer.write(tokens);
    writer.finish();
  };
  write_shard(folder_ / "few.bin", few);
  EXPECT_NE(error(folder_ / "few.bin").find("3 tokens, fewer than one window of 24"), std::string::npos);
  write_shard(folder_ / "strange.bin", strange);
  EXPECT_NE(
      error(folder_ / "strange.bin").find("token 270 at position 0 is outside the model's vocabulary of 260"),
      std::string::npos);
  std::filesystem::create_directory(folder_ / "only");
  write_shard(folder_ / "only/x_train_000001.bin", few);
  EXPECT_NE(error(folder_ / "only").find("no validation shards"), std::string::npos);
}

}  // namespace
}  // namespace ddl
