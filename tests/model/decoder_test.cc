// Cached decoding against the oracle's full forward pass: every rule, token by token, however the tokens
// come.
#include "model/decoder.h"

#include <gtest/gtest.h>

#include "model/oracle_model.h"
#include "model/plan.h"

namespace ddl {
namespace {

// A model with the oracle's logits for a few sequences.
struct Subject {
  ModelConfig config;
  Weights weights;
  ref::Parameters<double> parameters;

  explicit Subject(const Case& c)
      : config(model_config(c)), weights(scrambled_weights(config)), parameters(oracle_parameters(weights)) {}

  Sequence sequence(Index n, std::uint64_t seed) const {
    return oracle_sequence(config, parameters, n, seed);
  }
  double error(const Sequence& s, Index t, std::span<const float> logits) const {
    return logits_error(config, s, t, logits);
  }
};

class EveryRuleDecoding : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Decoder, EveryRuleDecoding, testing::ValuesIn(rule_names()), rule_test_name);

// Spans of every kind over one sequence of 16 tokens: single tokens from the first (prompts shorter than the
// kernels of 3 and 4 taps), a prompt then single tokens, chunks that cut a prompt anywhere, all at once.
TEST_P(EveryRuleDecoding, CachedDecodingIsAFullForwardPass) {
  for (const char* gate : {"linear", "two-layer"})
    for (const char* compressor : {"sublayer", "block"}) {
      const Subject subject({.residual = GetParam(), .gate = gate, .compressor = compressor, .mup = true});
      const Sequence s = subject.sequence(16, 1);
      for (Index chunk : {1, 2, 3, 5, 64}) {
        const Exec ex{.threads = chunk % 2 ? 1 : 2};  // two that share one token mostly wait for each other
        for (const std::vector<Index>& appends :
             {std::vector<Index>(16, 1), {16}, {1, 15}, {2, 1, 1, 1, 11}, {7, 1, 1, 1, 1, 5}, {12, 4}}) {
          const auto decoder = make_decoder(subject.weights, {.slots = 2, .chunk = chunk}, ex);
          Index t = 0, visited = 0;
          for (const Index n : appends) {
            const Decoder::Append a{1, part(s, t, n)};
            decoder->append_visiting(
                {&a, 1},
                [&](Index i, Index j, std::span<const float> logits) {
                  EXPECT_EQ(i, 0);
                  EXPECT_EQ(t + j, visited++);
                  EXPECT_LT(subject.error(s, t + j, logits), 1) << "token " << t + j << " chunk " << chunk;
                },
                ex);
            t += n;
            EXPECT_EQ(decoder->length(1), t);
          }
          EXPECT_EQ(visited, 16);
        }
      }
    }
}

// Sequences of different lengths share steps; slots are used again; logits() is the last token's.
TEST_P(EveryRuleDecoding, BatchesOfDifferentLengthsAndSlotsUsedAgain) {
  const Subject subject({.residual = GetParam()});
  std::vector<Sequence> s;
  for (Index i = 0; i < 4; ++i) s.push_back(subject.sequence(14 - i, 10 + static_cast<std::uint64_t>(i)));
  const Exec ex{.threads = 2};
  const auto decoder = make_decoder(subject.weights, {.slots = 3, .chunk = 8}, ex);
  std::vector<Index> at(4, 0);
  const auto step = [&](const std::vector<std::array<Index, 3>>& work) {  // slot, sequence, tokens
    std::vector<Decoder::Append> appends;
    for (const auto& [slot, which, n] : work) {
      appends.push_back({slot, part(s[which], at[which], n)});
      at[which] += n;
    }
    decoder->append(appends, ex);
    for (std::size_t i = 0; i < work.size(); ++i)
      EXPECT_LT(subject.error(s[work[i][1]], at[work[i][1]] - 1, decoder->logits(static_cast<Index>(i))), 1)
          << "sequence " << work[i][1] << " after " << at[work[i][1]];
  };
  step({{2, 0, 1}});
  step({{0, 1, 9}, {2, 0, 1}, {1, 2, 2}});  // a prompt cut by the chunk beside a single token
  for (int i = 0; i < 3; ++i) step({{2, 0, 1}, {0, 1, 1}, {1, 2, 1}});
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

TEST_P(EveryRuleDecoding, ASequencesBitsDoNotDependOnItsCompanyOrOnThreads) {
  const Subject subject({.residual = GetParam()});
  const Sequence s = subject.sequence(10, 1), other = subject.sequence(10, 2);
  const auto run = [&](Index company, int threads) {
    const Exec ex{.threads = threads};
    const auto decoder = make_decoder(subject.weights, {.slots = 4}, ex);
    std::vector<float> all;
    for (Index t = 0; t < 10; ++t) {
      std::vector<Decoder::Append> appends{{3, part(s, t, 1)}};
      for (Index i = 0; i < company; ++i) appends.push_back({i, part(other, t, 1)});
      decoder->append(appends, ex);
      all.insert(all.end(), decoder->logits(0).begin(), decoder->logits(0).end());
    }
    return all;
  };
  const auto alone = run(0, 1);
  EXPECT_EQ(run(3, 1), alone);
  EXPECT_EQ(run(3, 3), alone);
}

// The weights' rounding to bf16 moves the logits themselves; beyond that, cached and whole must agree to the
// rounding of the activations, eps per sublayer.
TEST_P(EveryRuleDecoding, Bf16IsWithinItsRounding) {
  ModelConfig m = model_config({.residual = GetParam()});
  m.width = 64, m.heads = 2, m.mlp = 0, m.precision = Precision::kBf16;
  const Exec ex{.threads = 2};
  const Weights weights(m, 3, ex);
  const auto x = tokens(16, 1);
  const auto collect = [&](Index n) {
    std::vector<double> all;
    const auto decoder = make_decoder(weights, {}, ex);
    for (Index t = 0; t < 16; t += n) {
      const Decoder::Append a{0,
                              std::span(x).subspan(static_cast<std::size_t>(t), static_cast<std::size_t>(n))};
      decoder->append_visiting(
          {&a, 1},
          [&](Index, Index, std::span<const float> logits) {
            all.insert(all.end(), logits.begin(), logits.end());
          },
          ex);
    }
    return all;
  };
  const auto whole = collect(16), steps = collect(1);
  auto difference = whole;
  for (std::size_t i = 0; i < whole.size(); ++i) difference[i] -= steps[i];
  EXPECT_LT(rms(difference), 4 * kBf16Epsilon * std::sqrt(static_cast<double>(m.sublayers())) * rms(whole));
}

// What the plan promises is what decoding keeps.
TEST_P(EveryRuleDecoding, CachesAreThosePlanned) {
  const ModelConfig m = model_config({.residual = GetParam()});
  const ModelPlan plan = plan_model(m, {1, 1});
  const Weights weights(m, 1, Exec{});
  const auto decoder = make_decoder(weights, {.slots = 64}, Exec{});
  std::size_t history = 0, keys_values = 0;
  for (const Arena::Entry& e : decoder->arena().ledger()) {
    if (e.name.starts_with("history")) history += e.bytes;
    if (e.name == "keys and values") keys_values += e.bytes;
  }
  EXPECT_EQ(static_cast<Index>(history), 64 * plan.cache_bytes_per_sequence);
  EXPECT_EQ(static_cast<Index>(keys_values), 64 * m.context * plan.cache_bytes_per_token);
  // Only rules with convolutions over tokens look at other tokens.
  const bool looks_back =
      has_option(GetParam(), "model.embed_kernel") || has_option(GetParam(), "model.state_kernel");
  EXPECT_EQ(history > 0, looks_back);
}

TEST(Decoder, RefusesWhatDoesNotFit) {
  const Subject subject({});
  const auto decoder = make_decoder(subject.weights, {.slots = 1, .context = 8}, Exec{});
  const Sequence s = subject.sequence(10, 1);
  const auto error = [&](std::span<const std::int32_t> tokens) -> std::string {
    const Decoder::Append a{0, tokens};
    try {
      decoder->append({&a, 1}, Exec{});
    } catch (const UserError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(error(part(s, 0, 7)), "");
  EXPECT_NE(error(part(s, 7, 2)).find("a sequence of 9 tokens: this model was made for 8"),
            std::string::npos);
  EXPECT_EQ(decoder->length(0), 7) << "nothing has changed";
  EXPECT_EQ(error(part(s, 7, 1)), "");
  EXPECT_LT(subject.error(s, 7, decoder->logits(0)), 1);
  decoder->reset(0);
  const std::vector<std::int32_t> strange{3, 11};
  EXPECT_NE(error(strange).find("token 11 is not in the model's vocabulary of 11"), std::string::npos);
  EXPECT_THROW(make_decoder(subject.weights, {.context = 17}, Exec{}), UserError);
  EXPECT_THROW(make_decoder(subject.weights, {.slots = 0}, Exec{}), UserError);
}

// The tests' power: a history that is one step off, or a slot that keeps its predecessor's, is far outside
// the tolerance. Both are what a decoder with the fault would compute.
TEST(Decoder, AFaultyHistoryWouldBeNoticed) {
  for (const char* rule : {"ddl-tc", "ddl-tc-noec", "ddl-cc"}) {
    const Subject subject({.residual = rule});
    const Sequence s = subject.sequence(12, 1);
    const auto decoder = make_decoder(subject.weights, {.slots = 2}, Exec{});
    double shifted = 0;
    // Leaving the third token out moves every later history by one.
    for (Index t = 0; t < 12; ++t) {
      if (t == 2) continue;
      const Decoder::Append a{0, part(s, t, 1)};
      decoder->append({&a, 1}, Exec{});
      if (t == 3) shifted = subject.error(s, t, decoder->logits(0));
    }
    EXPECT_GT(shifted, 10) << rule;
    // The neighbour's history with the same last token.
    const Sequence other = subject.sequence(12, 2);
    const Decoder::Append a{1, part(other, 0, 11)}, b{1, part(s, 11, 1)};
    decoder->append({&a, 1}, Exec{});
    decoder->append({&b, 1}, Exec{});
    EXPECT_GT(subject.error(s, 11, decoder->logits(0)), 10) << rule;
  }
}

}  // namespace
}  // namespace ddl
