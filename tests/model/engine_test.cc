// The reference engine beside the native one, through the same interfaces: what learns, what decodes and what
// scores agree to the rounding of f32, for every rule.
#include "model/engine.h"

#include <gtest/gtest.h>

#include "model/oracle_model.h"
#include "test_folder.h"

namespace ddl {
namespace {

ModelConfig on_engine(const std::string& engine, Case c) {
  c.mup = true;  // logits are scaled
  ModelConfig m = model_config(c);
  m.engine = engine;
  return m;
}

class EveryRuleEngines : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Engine, EveryRuleEngines, testing::ValuesIn(rule_names()), rule_test_name);

TEST_P(EveryRuleEngines, LearnTheSame) {
  const BatchShape shape{2, 4};
  const auto x = tokens(shape.N(), 1);
  auto y = tokens(shape.N(), 2);
  y[3] = -1;  // not predicted
  const BatchView batch{x.data(), y.data()};
  const auto make = [&](const char* engine) {
    auto model = trainable(on_engine(engine, {.residual = GetParam()}), shape);
    scramble(*model);
    return model;
  };
  const auto native = make("native"), reference = make("reference"), moved = make("reference");
  const auto table = native->weights().table().list();
  ASSERT_EQ(reference->weights().table().list().size(), table.size());
  for (const Param& p : table) {  // as nudged() does, in f32
    const Random random(9, p.name);
    for (Index i = 0; i < p.count; ++i)
      moved->weights().values()[p.offset + i] *=
          1 +
          (random.bits(static_cast<std::uint64_t>(i)) & 1 ? 1 : -1) * std::numeric_limits<float>::epsilon();
  }
  moved->upload(Exec{});

  const Index N = shape.N(), steps = roundings(native->config(), N);
  std::vector<float> loss_N(N), reference_loss_N(N);
  std::vector<std::uint8_t> correct_N(N), reference_correct_N(N);
  const double loss = native->loss(batch, {loss_N.data(), correct_N.data()}, Exec{});
  EXPECT_NEAR(reference->loss(batch, {reference_loss_N.data(), reference_correct_N.data()}, Exec{}), loss,
              1e-5 * loss);
  EXPECT_EQ(correct_N, reference_correct_N);
  for (Index n = 0; n < N; ++n) EXPECT_NEAR(loss_N[n], reference_loss_N[n], 1e-5 * loss) << n;
  EXPECT_EQ(reference_loss_N[3], 0);

  native->loss_and_grad(batch, 0.5, Exec{});
  EXPECT_NEAR(reference->loss_and_grad(batch, 0.5, Exec{}), loss, 1e-5 * loss);
  moved->loss_and_grad(batch, 0.5, Exec{});
  for (const Param& p : table) {
    if (vanishes(native->config(), p.name)) continue;
    const auto expected = tensor(reference->gradients(), p);
    EXPECT_LT(rounding_ratio(tensor(native->gradients(), p), expected, steps),
              amplification(expected, tensor(moved->gradients(), p)))
        << p.name;
  }

  for (int i = 0; i < 3; ++i) {
    if (i > 0) native->loss_and_grad(batch, 1, Exec{}), reference->loss_and_grad(batch, 1, Exec{});
    EXPECT_TRUE(native->update(1e-3, Exec{}).applied);
    EXPECT_TRUE(reference->update(1e-3, Exec{}).applied);
  }
  const double later = native->loss(batch, {}, Exec{});
  EXPECT_LT(later, loss - 1e-3 * loss) << "they have learnt something";
  EXPECT_NEAR(reference->loss(batch, {}, Exec{}), later, 1e-4 * later);
}

// The weights of a test, and a mutant of them: the last norm too large by a thousandth.
Weights test_weights(const ModelConfig& config, float last_norm = 1) {
  Weights weights = scrambled_weights(config);
  for (float& w : weights.tensor("ln_f.weight")) w *= last_norm;
  weights.update_copy(Exec{});
  return weights;
}
constexpr float kMutant = 1.01f;

std::int32_t most_likely_of(std::span<const float> logits) {
  return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

TEST_P(EveryRuleEngines, DecodeTheSame) {
  // The logits after every token of a prompt and of what the model itself says next.
  const auto decode = [&](const char* engine, std::vector<std::int32_t>& said, float last_norm = 1) {
    const Weights weights = test_weights(on_engine(engine, {.residual = GetParam()}), last_norm);
    const auto decoder = make_decoder(weights, {.slots = 3}, Exec{});
    const auto prompt = tokens(5, 1), other = tokens(3, 2);
    std::vector<double> logits;
    const std::vector<Decoder::Append> begin{{2, prompt}, {0, other}};
    decoder->append_visiting(
        begin,
        [&](Index, Index, std::span<const float> z) { logits.insert(logits.end(), z.begin(), z.end()); },
        Exec{});
    decoder->copy(1, 2);
    decoder->reset(2);
    EXPECT_EQ(decoder->length(1), 5);
    EXPECT_EQ(decoder->length(2), 0);
    std::int32_t next = most_likely_of(std::vector<float>(logits.begin() + 4 * 11, logits.begin() + 5 * 11));
    for (Index t = 5; t < 16; ++t) {
      said.push_back(next);
      const Decoder::Append a{1, {&next, 1}};
      decoder->append({&a, 1}, Exec{});
      logits.insert(logits.end(), decoder->logits(0).begin(), decoder->logits(0).end());
      next = most_likely_of(decoder->logits(0));
    }
    return logits;
  };
  std::vector<std::int32_t> said, reference_said;
  const auto native = decode("native", said), reference = decode("reference", reference_said);
  EXPECT_EQ(said, reference_said);
  const ModelConfig m = on_engine("native", {.residual = GetParam()});
  const Sequence s = oracle_sequence(m, oracle_parameters(scrambled_weights(m)), 16, 1);
  EXPECT_LT(rounding_ratio(native, reference, roundings(m, 16)), s.amplified);
  EXPECT_GT(rounding_ratio(native, decode("reference", said, kMutant), roundings(m, 16)), s.amplified);
}

TEST_P(EveryRuleEngines, ScoreTreesTheSame) {
  // One stem, two branches, of one of them another, and a sequence of its own.
  const auto a = tokens(4, 1), b = tokens(3, 2), c = tokens(5, 3), d = tokens(2, 4), e = tokens(6, 5);
  const std::vector<TreeRun> runs{{0, 0, a, 3}, {1, 4, b, 0}, {1, 4, c, 5}, {2, 9, d, 1}, {0, 0, e, 2}};
  const auto score = [&](const char* engine, float last_norm = 1) {
    const Weights weights = test_weights(on_engine(engine, {.residual = GetParam()}), last_norm);
    const auto scorer = make_tree_scorer(weights, {.batch_tokens = 8, .depths = 4}, Exec{});
    std::vector<double> out;
    std::vector<std::pair<Index, Index>> visited;
    scorer->run(
        runs,
        [&](Index run, Index token, const NextToken& next) {
          visited.emplace_back(run, token);
          for (std::int32_t v = 0; v < 11; ++v)
            out.push_back(next.log_probability(v)), out.push_back(next.is_most_likely(v));
        },
        Exec{});
    EXPECT_EQ(visited, (std::vector<std::pair<Index, Index>>{
                           {0, 3}, {1, 0}, {1, 1}, {1, 2}, {3, 1}, {4, 2}, {4, 3}, {4, 4}, {4, 5}}));
    return out;
  };
  const ModelConfig m = on_engine("native", {.residual = GetParam()});
  const Sequence s = oracle_sequence(m, oracle_parameters(scrambled_weights(m)), 16, 1);
  const auto native = score("native");
  EXPECT_LT(rounding_ratio(native, score("reference"), roundings(m, 16)), s.amplified);
  EXPECT_GT(rounding_ratio(native, score("reference", kMutant), roundings(m, 16)), s.amplified);
}

TEST(Engine, AnUnknownOneIsRefusedWithTheList) {
  ModelConfig m = model_config({});
  m.engine = "nativ";
  const auto has_list = [](const std::string& message) {
    return contains(message, "nativ") && contains(message, "native, reference, torch");
  };
  const Weights weights(m);
  EXPECT_TRUE(has_list(message_of<UserError>([&] { trainable(m, {1, 4}); })));
  EXPECT_TRUE(has_list(message_of<UserError>([&] { make_decoder(weights, {}, Exec{}); })));
  EXPECT_TRUE(has_list(message_of<UserError>([&] { make_tree_scorer(weights, {}, Exec{}); })));
  const std::string option = message_of<UserError>([&] { m.set("model.engine=nativ"); });
  EXPECT_TRUE(contains(option, "native") && contains(option, "reference")) << option;
  EXPECT_EQ(engine_names(), (std::vector<std::string>{"native", "reference", "torch"}));
}

// The torch engine is in a library that this program cannot open: it says what to do in one line.
TEST(Engine, TheTorchEngineIsAPart) {
  ModelConfig m = model_config({});
  m.engine = "torch";
  const std::string message = message_of<UserError>([&] { trainable(m, {1, 4}); });
  EXPECT_TRUE(contains(message, "./ddl setup torch")) << message;
  EXPECT_FALSE(contains(message, "\n")) << message;
}

TEST(Engine, DevicesHaveNames) {
  for (const char* device : {"cpu", "cuda:3", "auto", "cuda"}) {
    choose_device(device);
    EXPECT_EQ(chosen_device(), device);
  }
  for (const char* device : {"", "gpu", "cuda:", "cuda:x", "cuda:-1", "cpu:0", "cuda:1234"})
    EXPECT_TRUE(contains(message_of<UserError>([&] { choose_device(device); }), "cuda:N")) << device;
  EXPECT_EQ(chosen_device(), "cuda");  // as before
  choose_device("auto");
}

const std::vector<std::string> kBoth = {"native", "reference"};

// What is refused is refused by both.
TEST(Engine, BothRefuseWhatDoesNotFit) {
  for (const std::string& engine : kBoth) {
    const ModelConfig m = on_engine(engine, {});
    EXPECT_TRUE(contains(message_of<UserError>([&] { trainable(m, {1, 17}); }), "1 to 16 tokens")) << engine;
    const Weights weights(m);
    EXPECT_THROW(make_decoder(weights, {.slots = 0}, Exec{}), UserError) << engine;
    const auto decoder = make_decoder(weights, {.context = 4}, Exec{});
    const auto scorer = make_tree_scorer(weights, {}, Exec{});
    const auto five = tokens(5, 1), long_one = tokens(17, 1);
    const std::vector<std::int32_t> strange{3, 11};
    for (const auto& [sequence, reason] : {std::pair{five, "a sequence of 5 tokens"},
                                           {strange, "token 11 is not in the model's vocabulary"}}) {
      const Decoder::Append a{0, sequence};
      EXPECT_TRUE(contains(message_of<UserError>([&] {
                             decoder->append({&a, 1}, Exec{});
                           }),
                           reason))
          << engine;
      EXPECT_EQ(decoder->length(0), 0) << engine;
    }
    for (const auto& sequence : {long_one, strange}) {
      const TreeRun run{0, 0, sequence, 0};
      EXPECT_THROW(scorer->run(
                       {&run, 1}, [](Index, Index, const NextToken&) {}, Exec{}),
                   UserError)
          << engine;
    }
  }
}

// A batch without a target has no loss: both say so.
TEST(Engine, BothRefuseABatchWithoutTargets) {
  const auto x = tokens(4, 1);
  const std::vector<std::int32_t> none(4, -1);
  for (const std::string& engine : kBoth) {
    const auto model = trainable(on_engine(engine, {}), {1, 4});
    EXPECT_THROW(model->loss({x.data(), none.data()}, {}, Exec{}), UserError) << engine;
    EXPECT_THROW(model->loss_and_grad({x.data(), none.data()}, 1, Exec{}), UserError) << engine;
  }
}

}  // namespace
}  // namespace ddl
