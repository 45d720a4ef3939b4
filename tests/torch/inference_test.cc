// The torch engine's decoder and scorer beside the native ones and the oracle: every rule, however the tokens come.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "model/engine.h"
#include "model/oracle_model.h"
#include "test_folder.h"
#include "torch/cpu_kernels.h"
#include "torch/decoder.h"
#include "torch/tree_scorer.h"

namespace ddl {
namespace torch_inference {

const Exec kCore{.threads = 1};
constexpr double kBothAreRounded = 2;  // two computations in f32 may be on either side of the truth

std::vector<double> log_softmax(std::span<const float> logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float z : logits) sum += std::exp(z - largest);
  std::vector<double> out;
  for (const float z : logits) out.push_back(z - largest - std::log(sum));
  return out;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

std::int32_t most_likely_of(std::span<const float> logits) {
  return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// A small model, with how much its rule makes of rounding (oracle_model.h).
struct Model {
  ModelConfig config;
  Weights weights;
  ref::Parameters<double> parameters;

  explicit Model(const Case& c, float last_norm = 1)
      : config(model_config(c)), weights(scrambled_weights(config)) {
    for (float& w : weights.tensor("ln_f.weight")) w *= last_norm;
    weights.update_copy(kCore);
    parameters = oracle_parameters(weights);
  }
  Sequence sequence(Index n, std::uint64_t seed) const {
    return oracle_sequence(config, parameters, n, seed);
  }
  std::unique_ptr<Decoder> native_decoder(const DecoderShape& shape) const {
    return make_decoder(weights, shape, kCore);
  }
  std::unique_ptr<Decoder> torch_decoder(const DecoderShape& shape) const {
    return make_torch_decoder(weights, shape, {});
  }
};

class EveryRuleInferring : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Torch, EveryRuleInferring, testing::ValuesIn(rule_names()), rule_test_name);

std::vector<double> decode(Decoder& decoder, const Sequence& s, const std::vector<Index>& appends) {
  std::vector<double> all;
  Index t = 0;
  for (const Index n : appends) {
    const Decoder::Append a{1, part(s, t, n)};
    decoder.append_visiting(
        {&a, 1},
        [&](Index, Index, std::span<const float> logits) {
          const auto row = log_softmax(logits);
          all.insert(all.end(), row.begin(), row.end());
        },
        kCore);
    t += n;
  }
  return all;
}

// Single tokens from the first, prompts of any length and chunks that cut them anywhere: the log-probability
// of every token after every token.
TEST_P(EveryRuleInferring, DecodesAsNativeDoes) {
  double worst = 0;
  for (const auto& [gate, compressor] : {std::pair{"linear", "sublayer"}, {"two-layer", "block"}}) {
    const Case c{.residual = GetParam(), .gate = gate, .compressor = compressor, .mup = true};
    const Model model(c);
    const Sequence s = model.sequence(16, 1);
    const Index steps = roundings(model.config, 16);
    const auto expected = decode(*model.native_decoder({.slots = 2}), s, {16});
    for (const Index chunk : {2, 3, 64})
      for (const std::vector<Index>& appends :
           {std::vector<Index>(16, 1), {16}, {2, 1, 1, 1, 11}, {7, 1, 1, 1, 1, 5}}) {
        const auto actual = decode(*model.torch_decoder({.slots = 2, .chunk = chunk}), s, appends);
        EXPECT_LT(rounding_ratio(actual, expected, steps) / s.amplified, kBothAreRounded)
            << "chunk " << chunk;
        worst = std::max(worst, largest_difference(actual, expected));
      }
    // The comparison has power: a norm that is a hundredth too large.
    const auto mutant = decode(*Model(c, 1.01f).torch_decoder({.slots = 2}), s, {16});
    EXPECT_GT(rounding_ratio(mutant, expected, steps) / s.amplified, kBothAreRounded);
  }
  std::printf("%-14s decoder, log-probabilities within %.1e of native's\n", GetParam().c_str(), worst);
}

// Logits after every token of a sequence, against the oracle in double precision.
TEST_P(EveryRuleInferring, DecodesAsTheOracleDoes) {
  const Model model({.residual = GetParam(), .mup = true});
  const Sequence s = model.sequence(16, 1);
  for (const Index n : {1, 5, 16}) {
    const auto decoder = model.torch_decoder({.chunk = 4});
    for (Index t = 0; t < 16; t += n) {
      const Decoder::Append a{0, part(s, t, std::min(n, 16 - t))};
      decoder->append_visiting(
          {&a, 1},
          [&](Index, Index j, std::span<const float> logits) {
            EXPECT_LT(logits_error(model.config, s, t + j, logits), 1) << "token " << t + j;
          },
          kCore);
    }
  }
}

// Sequences of different lengths share passes; slots are used again, and copied.
TEST_P(EveryRuleInferring, SequencesOfDifferentLengthsShareAPass) {
  const Model model({.residual = GetParam()});
  std::vector<Sequence> s;
  for (Index i = 0; i < 4; ++i) s.push_back(model.sequence(14 - i, 10 + static_cast<std::uint64_t>(i)));
  const auto decoder = model.torch_decoder({.slots = 3, .chunk = 8});
  std::vector<Index> at(4, 0);
  const auto step = [&](const std::vector<std::array<Index, 3>>& work) {  // slot, sequence, tokens
    std::vector<Decoder::Append> appends;
    for (const auto& [slot, which, n] : work) {
      appends.push_back({slot, part(s[which], at[which], n)});
      at[which] += n;
    }
    decoder->append(appends, kCore);
    for (std::size_t i = 0; i < work.size(); ++i) {
      const auto& [slot, which, n] = work[i];
      EXPECT_EQ(decoder->length(slot), at[which]);
      EXPECT_LT(logits_error(model.config, s[which], at[which] - 1, decoder->logits(static_cast<Index>(i))),
                1)
          << "sequence " << which << " after " << at[which];
    }
  };
  step({{2, 0, 1}});
  step({{0, 1, 9}, {2, 0, 1}, {1, 2, 2}});                              // a prompt that the chunk cuts
  for (int i = 0; i < 3; ++i) step({{2, 0, 1}, {0, 1, 1}, {1, 2, 1}});  // single tokens
  decoder->reset(0);
  EXPECT_EQ(decoder->length(0), 0);
  step({{1, 2, 1}, {0, 3, 1}});
  step({{0, 3, 2}, {1, 2, 1}, {2, 0, 3}});
  // A copy goes on like its original.
  decoder->copy(2, 0);
  at[0] = at[3], s[0] = s[3];
  step({{0, 3, 1}, {2, 0, 1}});
  step({{2, 0, 2}, {0, 3, 1}});
}

// What the model itself says, token by token.
TEST_P(EveryRuleInferring, SaysTheSameGreedily) {
  const Model model({.residual = GetParam()});
  const auto say = [](Decoder& decoder) {
    std::vector<std::int32_t> said = tokens(3, 1);
    Decoder::Append a{0, said};
    while (std::ssize(said) < 16) {
      decoder.append({&a, 1}, kCore);
      said.push_back(most_likely_of(decoder.logits(0)));
      a.tokens = std::span(said).last(1);
    }
    return said;
  };
  EXPECT_EQ(say(*model.torch_decoder({})), say(*model.native_decoder({})));
}

// A tree with branches at several depths, single tokens and runs that passes cut; wanted are all tokens, the
// last ones, or none.
struct Tree {
  std::vector<std::vector<std::int32_t>> texts;
  std::vector<TreeRun> runs;
  void add(Index depth, Index position, Index count, Index first_wanted) {
    texts.push_back(tokens(count, 100 + texts.size()));
    runs.push_back(
        {.depth = depth, .position = position, .tokens = texts.back(), .first_wanted = first_wanted});
  }
  Tree() {
    add(0, 0, 4, 3), add(1, 4, 3, 0), add(1, 4, 5, 5), add(2, 9, 2, 1), add(2, 9, 1, 0), add(3, 10, 6, 0);
    add(2, 9, 4, 0), add(1, 4, 1, 0), add(2, 5, 1, 0), add(3, 6, 1, 0), add(0, 0, 1, 0), add(1, 1, 15, 2);
    add(1, 1, 2, 0), add(0, 0, 6, 2);
  }
};

struct Scores {
  std::vector<double> log_probabilities;
  std::vector<std::array<Index, 3>> visited;  // run, token, the most likely
};
Scores score(TreeScorer& scorer) {
  Scores scores;
  scorer.run(
      Tree().runs,
      [&](Index run, Index token, const NextToken& next) {
        for (std::int32_t v = 0; v < 11; ++v) {
          scores.log_probabilities.push_back(next.log_probability(v));
          if (next.is_most_likely(v)) scores.visited.push_back({run, token, v});
        }
      },
      kCore);
  return scores;
}

TEST_P(EveryRuleInferring, ScoresTreesAsNativeDoes) {
  double worst = 0;
  for (const char* gate : {"linear", "two-layer"}) {
    const Case c{.residual = GetParam(), .gate = gate, .mup = true};
    const Model model(c);
    const Scores expected = score(*make_tree_scorer(model.weights, {.batch_tokens = 64, .depths = 4}, kCore));
    EXPECT_GT(expected.visited.size(), 30u);
    const Index steps = roundings(model.config, 16);
    const double amplified = model.sequence(16, 1).amplified;
    for (const Index batch_tokens : {1, 2, 3, 7, 20, 1000}) {
      const auto scorer =
          make_torch_tree_scorer(model.weights, {.batch_tokens = batch_tokens, .depths = 4}, {});
      for (int twice = 0; twice < 2; ++twice) {  // nothing is left of the first time
        const Scores actual = score(*scorer);
        EXPECT_EQ(actual.visited, expected.visited) << batch_tokens;
        EXPECT_LT(rounding_ratio(actual.log_probabilities, expected.log_probabilities, steps) / amplified,
                  kBothAreRounded)
            << batch_tokens;
        worst = std::max(worst, largest_difference(actual.log_probabilities, expected.log_probabilities));
      }
    }
    const Scores mutant = score(*make_torch_tree_scorer(Model(c, 1.01f).weights, {.depths = 4}, {}));
    EXPECT_GT(rounding_ratio(mutant.log_probabilities, expected.log_probabilities, steps) / amplified,
              kBothAreRounded);
  }
  std::printf("%-14s scorer, log-probabilities within %.1e of native's\n", GetParam().c_str(), worst);
}

// A few roundings to 8 bits per sublayer, as between native's own ways to decode (tests/model/decoder_test.cc).
TEST_P(EveryRuleInferring, Bf16IsNearTheNativeBf16) {
  ModelConfig m = model_config({.residual = GetParam()});
  m.width = 64, m.heads = 2, m.mlp = 0, m.precision = Precision::kBf16;
  const Weights weights(m, 3, kCore);
  const Sequence s{tokens(16, 1), {}, 1};
  const auto expected = decode(*make_decoder(weights, {.slots = 2}, kCore), s, {16});
  for (const std::vector<Index>& appends : {std::vector<Index>(16, 1), {16}}) {
    auto difference = decode(*make_torch_decoder(weights, {.slots = 2}, {}), s, appends);
    for (std::size_t i = 0; i < difference.size(); ++i) difference[i] -= expected[i];
    EXPECT_GT(rms(difference), 0) << "it has native's bits: it did not compute";
    // Log-probabilities are of the size of log V; what is rounded are logits, whose spread they share.
    auto spread = expected;
    for (std::size_t i = 0; i < spread.size(); ++i) spread[i] += std::log(double{11});
    EXPECT_LT(rms(difference),
              4 * kBf16Epsilon * std::sqrt(static_cast<double>(m.sublayers())) * rms(spread));
  }
}

// The CUDA kernels' text for RoPE + QK-norm and SwiGLU, at the positions of tokens that continue sequences.
TEST(TorchInference, KernelsAtAnyPosition) {
  const Model model({.residual = "ddl-tc"});
  const Sequence s = model.sequence(16, 1);
  const auto expected = decode(*model.native_decoder({.slots = 2}), s, {16});
  const auto with_kernels = make_torch_decoder(model.weights, {.slots = 2}, {.kernels = &cpu_kernels()});
  EXPECT_LT(rounding_ratio(decode(*with_kernels, s, {5, 1, 1, 9}), expected, roundings(model.config, 16)) /
                s.amplified,
            kBothAreRounded);
}

// Nothing to remember: convolutions of one tap.
TEST(TorchInference, ConvolutionsOfOneTap) {
  for (const char* rule : {"ihc", "ddl-tc"}) {
    ModelConfig config = model_config({.residual = rule});
    set_if_known(config, "model.embed_kernel", "1");
    set_if_known(config, "model.state_kernel", "1");
    const Weights weights = scrambled_weights(config);
    const Sequence s = oracle_sequence(config, oracle_parameters(weights), 16, 1);
    const auto expected = decode(*make_decoder(weights, {.slots = 2}, kCore), s, {16});
    const auto actual = decode(*make_torch_decoder(weights, {.slots = 2}, {}), s, {5, 1, 1, 9});
    EXPECT_LT(rounding_ratio(actual, expected, roundings(config, 16)) / s.amplified, kBothAreRounded) << rule;
  }
}

// A sequence that has gone wrong leaves nothing to the next one in its slot, which shares a pass with a longer one.
TEST(TorchInference, ASlotForgetsWhatWasNotANumber) {
  Model model({.residual = "baseline"});
  const Index C = model.config.width, bad = model.config.vocab - 1;  // the token without an embedding
  for (Index c = 0; c < C; ++c) model.weights.tensor("transformer.wte.weight")[bad * C + c] = NAN;
  const std::vector<std::int32_t> ruined(12, static_cast<std::int32_t>(bad)), good{1, 2, 3, 4, 5, 6, 7, 8};
  const auto after = [&](Decoder& decoder) {
    const std::array prompts{Decoder::Append{0, good}, Decoder::Append{1, std::span(good).first(3)}};
    decoder.append(prompts, kCore);
    const std::array single{Decoder::Append{0, std::span(good).first(1)},
                            Decoder::Append{1, std::span(good).first(1)}};
    decoder.append(single, kCore);
    const std::span<const float> logits = decoder.logits(1);
    return std::vector<double>(logits.begin(), logits.begin() + bad);
  };
  const auto fresh = model.torch_decoder({.slots = 2}), used = model.torch_decoder({.slots = 2});
  const std::array first{Decoder::Append{1, ruined}};
  used->append(first, kCore);
  EXPECT_TRUE(std::isnan(used->logits(0)[0])) << "the test has power";
  used->reset(1);
  EXPECT_EQ(after(*used), after(*fresh));
}

TEST(TorchInference, RefusesWhatDoesNotFit) {
  const Model model({});
  const auto decoder = model.torch_decoder({.context = 4});
  const auto scorer = make_torch_tree_scorer(model.weights, {}, {});
  const auto five = tokens(5, 1), long_one = tokens(17, 1);
  const std::vector<std::int32_t> strange{3, 11};
  for (const auto& [sequence, reason] :
       {std::pair{five, "a sequence of 5 tokens"}, {strange, "token 11 is not in the model's vocabulary"}}) {
    const Decoder::Append a{0, sequence};
    EXPECT_TRUE(contains(message_of<UserError>([&] { decoder->append({&a, 1}, kCore); }), reason));
    EXPECT_EQ(decoder->length(0), 0);
  }
  for (const auto& sequence : {long_one, strange}) {
    const TreeRun run{0, 0, sequence, 0};
    EXPECT_THROW(scorer->run(
                     {&run, 1}, [](Index, Index, const NextToken&) {}, kCore),
                 UserError);
  }
}

// What is remembered is told: keys and values of every slot.
TEST(TorchInference, TellsItsCaches) {
  const Model model({});
  const auto decoder = model.torch_decoder({.slots = 3, .context = 5});
  ASSERT_EQ(decoder->arena().ledger().size(), 1u);
  const Index bytes = 2 * model.config.layers * 3 * 5 * model.config.width * 4;
  EXPECT_GE(static_cast<Index>(decoder->arena().ledger()[0].bytes), bytes);
  EXPECT_LT(static_cast<Index>(decoder->arena().ledger()[0].bytes), bytes + 512);
}

// model.precision = "auto" asks where the engine computes; on the CPU that is what native asks.
TEST(TorchInference, AutoPrecisionOnTheCpuIsNatives) {
  ModelConfig native = model_config({}), torch = native;
  native.precision = torch.precision = Precision::kAuto, torch.engine = "torch";
  EXPECT_EQ(torch.uses_bf16(), native.uses_bf16());
  EXPECT_EQ(find_engine("torch").has_fast_bf16(), find_engine("native").has_fast_bf16());
  EXPECT_FALSE(find_engine("reference").has_fast_bf16());
}

}  // namespace torch_inference
}  // namespace ddl
