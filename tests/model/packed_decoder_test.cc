// Decoding with small weights, for every rule: against the oracle on what the codes stand for; and, in every format,
// that a sequence's bits depend on its own request alone.
#include <gtest/gtest.h>

#include "model/decoder.h"
#include "model/oracle_model.h"

namespace ddl {
namespace {

constexpr WeightFormat kFormats[] = {WeightFormat::kF32, WeightFormat::kBf16, WeightFormat::kQ8,
                                     WeightFormat::kQ4};

class EveryRulePacked : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(PackedDecoder, EveryRulePacked, testing::ValuesIn(rule_names()), rule_test_name);

// With codes an activation is rounded to 2^-16 of the largest of its 32, where f32 rounds to 2^-24 of itself: 256 times
// as coarse, and the largest is at most sqrt(32) times the root mean square.
double coarseness(WeightFormat format) { return info(format).has_scales ? 256 * std::sqrt(32.0) : 1; }

TEST_P(EveryRulePacked, IsAFullForwardPassOverWhatTheCodesStandFor) {
  const ModelConfig config = model_config({.residual = GetParam(), .mup = true});
  const Weights exact = scrambled_weights(config);
  for (const WeightFormat format : kFormats) {
    const Weights weights = to_format(exact, format, Exec{});
    const Sequence s =
        oracle_sequence(config, oracle_parameters(to_format(weights, WeightFormat::kF32, Exec{})), 16, 1);
    for (const std::vector<Index>& appends : {std::vector<Index>(16, 1), {16}, {7, 1, 8}}) {
      const auto decoder = make_decoder(weights, {.slots = 2, .chunk = 5}, Exec{.threads = 2});
      Index t = 0;
      for (const Index n : appends) {
        const Decoder::Append a{1, part(s, t, n)};
        decoder->append_visiting(
            {&a, 1},
            [&](Index, Index j, std::span<const float> logits) {
              EXPECT_LT(logits_error(config, s, t + j, logits), coarseness(format))
                  << info(format).name << " token " << t + j;
            },
            Exec{.threads = 2});
        t += n;
      }
    }
  }
}

// A model that is wide enough for several panels, and long enough for appends that are multiplied in blocks.
ModelConfig wide_config(const std::string& rule) {
  ModelConfig m = model_config({.residual = rule});
  m.width = 48, m.heads = 2, m.mlp = 40, m.vocab = 37, m.context = 160;
  return m;
}

// Logits after every append to `slot`, where others do what they want.
struct Request {
  std::vector<std::int32_t> tokens;
  std::vector<Index> appends;
};
std::vector<float> decode(const Weights& weights, const Request& request, Index company, Index chunk,
                          int threads) {
  const Exec ex{.threads = threads};
  const Index V = weights.config().vocab;
  const auto decoder = make_decoder(weights, {.slots = 16, .chunk = chunk}, ex);
  std::vector<float> all;
  Index t = 0, step = 0;
  for (const Index n : request.appends) {
    std::vector<std::vector<std::int32_t>> others;
    for (Index i = 0; i < company;
         ++i)  // prompts of 20 to 40 tokens among single ones, and a sequence that ends
      others.push_back(
          tokens((i + step) % 5 == 0 ? 20 + i : 1 + i % 3, static_cast<std::uint64_t>(i + 100 * step), V));
    std::vector<Decoder::Append> appends;
    for (Index i = 0; i < company; ++i) {
      const Index slot = i < 7 ? i : i + 1;
      if (decoder->length(slot) + 60 > decoder->context()) decoder->reset(slot);
      appends.push_back({slot, others[i]});
    }
    const Index mine = company / 2;
    appends.insert(
        appends.begin() + mine,
        {7, std::span(request.tokens).subspan(static_cast<std::size_t>(t), static_cast<std::size_t>(n))});
    decoder->append(appends, ex);
    const auto logits = decoder->logits(mine);
    all.insert(all.end(), logits.begin(), logits.end());
    t += n, ++step;
  }
  return all;
}

TEST_P(EveryRulePacked, ASequencesBitsAreAFunctionOfItsRequest) {
  const ModelConfig config = wide_config(GetParam());
  const Weights exact(config, 3, Exec{});
  for (const WeightFormat format : kFormats) {
    const Weights weights = to_format(exact, format, Exec{});
    // A short prompt, a long one, single tokens, and one more of each.
    const Request request{tokens(150, 9, config.vocab), {5, 70, 1, 1, 1, 17, 1, 16, 1}};
    const auto alone = decode(weights, request, 0, 256, 1);
    for (const Index company : {1, 3, 15})
      for (const Index chunk : {64, 256})
        EXPECT_EQ(decode(weights, request, company, chunk, chunk == 64 ? 1 : 2), alone)
            << info(format).name << " with " << company << ", " << chunk << " tokens at a time";
  }
}

// Packed matrices have one product for any number of tokens, so there the pieces do not matter either.
TEST_P(EveryRulePacked, PiecesOfAPromptDoNotMatter) {
  const ModelConfig config = wide_config(GetParam());
  const Weights exact(config, 3, Exec{});
  for (const WeightFormat format : {WeightFormat::kBf16, WeightFormat::kQ8, WeightFormat::kQ4}) {
    const Weights weights = to_format(exact, format, Exec{});
    const auto x = tokens(100, 9, config.vocab);
    const auto last = [&](std::vector<Index> appends) {
      const int threads = appends.size() < 10 ? 2 : 1;
      const auto all = decode(weights, {x, std::move(appends)}, 2, 64, threads);
      return std::vector<float>(all.end() - config.vocab, all.end());
    };
    const auto whole = last({100});
    EXPECT_EQ(last({1, 99}), whole) << info(format).name;
    EXPECT_EQ(last({17, 3, 1, 1, 1, 40, 37}), whole) << info(format).name;
    EXPECT_EQ(last(std::vector<Index>(100, 1)), whole) << info(format).name;
  }
}

// The scorer's logits and the decoder's are the same bits, too.
TEST(PackedDecoder, ScoringIsTheSameAsDecoding) {
  const ModelConfig config = wide_config("ddl-cc");
  for (const WeightFormat format : {WeightFormat::kBf16, WeightFormat::kQ8, WeightFormat::kQ4}) {
    const Weights weights = to_format(Weights(config, 3, Exec{}), format, Exec{});
    const auto x = tokens(60, 9, config.vocab);
    std::vector<float> decoded, scored;
    const auto decoder = make_decoder(weights, {}, Exec{});
    const Decoder::Append a{0, x};
    decoder->append_visiting(
        {&a, 1},
        [&](Index, Index, std::span<const float> logits) {
          decoded.insert(decoded.end(), logits.begin(), logits.end());
        },
        Exec{});
    const auto scorer = make_tree_scorer(weights, {.batch_tokens = 40}, Exec{});
    const TreeRun run{.depth = 0, .position = 0, .tokens = x, .first_wanted = 0};
    scorer->run(
        {&run, 1},
        [&](Index, Index, const NextToken& next) {
          scored.insert(scored.end(), next.logits_V.begin(), next.logits_V.end());
        },
        Exec{});
    EXPECT_EQ(scored, decoded) << info(format).name;
  }
}

// Only the large matrices are small: the rest is there as it was, and the numbers say what they are.
TEST(PackedWeights, NormsGatesAndTheRulesParametersStay) {
  for (const std::string& rule : rule_names()) {
    const ModelConfig config = model_config({.residual = rule, .gate = "two-layer"});
    const Weights exact = scrambled_weights(config);
    Weights packed = to_format(exact, WeightFormat::kQ4, Exec{});
    Index large = 0;
    for (const Param& p : packed.table().list()) {
      const Param& q = exact.table().find(p.name);
      const bool matrix = p.name.starts_with("transformer.") && p.shape.size() == 2 &&
                          (p.name.find(".attn.c_") != std::string::npos ||
                           p.name.find(".mlp.c_") != std::string::npos || p.name == "transformer.wte.weight");
      EXPECT_EQ(p.packed, matrix) << rule << " " << p.name;
      large += matrix;
      if (matrix) continue;
      const auto values = packed.tensor(p.name);
      EXPECT_TRUE(std::equal(values.begin(), values.end(), exact.values().begin() + q.offset)) << p.name;
    }
    EXPECT_EQ(large, 1 + 7 * config.layers);
    EXPECT_EQ(packed.numbers(), "f32 with q4 weights");
    EXPECT_EQ(exact.numbers(), "f32");
  }
}

}  // namespace
}  // namespace ddl
