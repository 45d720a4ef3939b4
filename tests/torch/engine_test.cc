// The torch engine beside the native one: the same loss and the same gradients, for every rule and every way that the
// residual stream can go; the same optimizer; runs that change engines.
#include "model/engine.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "core/plugin.h"
#include "core/rng.h"
#include "dist/comm.h"
#include "model/oracle_model.h"
#include "model/residual/registry.h"
#include "small_run.h"
#include "torch/cpu_kernels.h"
#include "torch/trainable.h"

extern "C" ddl::MakeComm ddl_make_comm;

namespace ddl {
namespace {

constexpr double kLossTolerance = 1e-6, kGradientTolerance = 5e-6;
const Exec kEx{.threads = 1};

struct Try {
  std::string rule = "ddl-cc";
  std::vector<std::string> sets = {};
  BatchShape shape = {2, 16};
  Index width = 64;
};

ModelConfig config_of(const Try& t) {
  ModelConfig m;
  m.layers = 2, m.width = t.width, m.heads = 2, m.vocab = 211, m.context = 32;
  m.precision = Precision::kF32, m.mup = true, m.base_width = 128;
  m.use_residual(t.rule);
  for (const std::string& set : t.sets) m.set(set);
  return m;
}

// Starting values with a little noise, so that nothing is zero or equal by design.
void add_noise(TrainableModel& model) {
  for (const Param& p : model.weights().table().list()) {
    const Random random(7, p.name);
    for (Index i = 0; i < p.count; ++i)
      model.weights().values()[p.offset + i] +=
          static_cast<float>(0.05 * random.normal(static_cast<std::uint64_t>(i)));
  }
  model.upload(kEx);
}

std::vector<std::int32_t> some_tokens(Index n, std::uint64_t seed) {
  std::vector<std::int32_t> out(static_cast<std::size_t>(n));
  const Random random(seed, "tokens");
  for (Index i = 0; i < n; ++i)
    out[i] = static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(i), 211));
  return out;
}

struct Result {
  double loss = 0;
  std::vector<float> gradients, loss_N;
  std::vector<std::uint8_t> correct_N;
};

// The loss and the gradients at the weights that the model has.
Result results_of(TrainableModel& model) {
  const Index N = model.shape().N();
  const auto x = some_tokens(N, 1);
  auto y = some_tokens(N, 2);
  y[3] = -1;  // not predicted
  const BatchView batch{x.data(), y.data()};
  Result r;
  r.loss_N.resize(static_cast<std::size_t>(N)), r.correct_N.resize(static_cast<std::size_t>(N));
  model.loss(batch, {r.loss_N.data(), r.correct_N.data()}, kEx);
  // Twice: gradients are added up.
  model.loss_and_grad(batch, 0.5, kEx);
  r.loss = model.loss_and_grad(batch, 1.5, kEx);
  const auto gradients = model.gradients();
  r.gradients.assign(gradients.begin(), gradients.end());
  return r;
}

Result run_model(TrainableModel& model, float norm_error = 0) {
  add_noise(model);
  if (norm_error != 0) {
    for (float& x : model.weights().tensor("ln_f.weight")) x *= 1 + norm_error;
    model.upload(kEx);
  }
  return results_of(model);
}

std::unique_ptr<TrainableModel> native_model(const Try& t) {
  return make_trainable(config_of(t), t.shape, OptimizerConfig{}, 1, kEx);
}
std::unique_ptr<TrainableModel> torch_model(const Try& t, StreamKind stream = StreamKind::kAuto) {
  at::set_num_threads(1);
  return make_torch_trainable(
      config_of(t), t.shape, OptimizerConfig{}, 1, kEx,
      {.stream = stream, .kernels = stream == StreamKind::kKernels ? &cpu_kernels() : nullptr});
}

// |a - b| / |b| for every tensor. What vanishes is measured by all gradients.
std::vector<double> differences(TrainableModel& model, const Result& actual, const Result& expected) {
  double all = 0;
  for (const float g : expected.gradients) all += double{g} * double{g};
  std::vector<double> found;
  for (const Param& p : model.weights().table().list()) {
    double difference = 0, size = 0;
    for (Index i = p.offset; i < p.offset + p.count; ++i) {
      difference += std::pow(double{actual.gradients[i]} - double{expected.gradients[i]}, 2);
      size += std::pow(double{expected.gradients[i]}, 2);
    }
    if (vanishes(model.config(), p.name)) size = all;
    found.push_back(std::sqrt(difference / std::max(size, 1e-60)));
  }
  return found;
}

// How far two computations in f32 may be apart in each tensor's gradient. Sums that nearly cancel (the
// gradient of a gate's one bias, that of a mix in front of a norm, which removes its size) lose more digits
// than the tolerance has, whoever computes them. So f32's error is sampled: the native engine's, against the
// oracle in double precision, where every weight is changed by the epsilon of f32, up or down. The difference
// of two such errors has sqrt(2) times their size, and exceeds the bound once in 10,000 tensors (Student's t
// of as many degrees of freedom as there are samples).
std::vector<double> reach_of_f32(const Try& t) {
  constexpr int kSamples = 8;
  constexpr double kStudent = 7.120;
  ModelConfig m = config_of(t);
  m.engine = "reference";
  const auto oracle = make_trainable(m, t.shape, OptimizerConfig{}, 1, kEx);
  const Result truth = run_model(*oracle);
  std::vector<double> reach(oracle->weights().table().list().size());
  for (std::uint64_t seed = 0; seed < kSamples; ++seed) {
    const auto model = native_model(t);
    add_noise(*model);
    for (const Param& p : model->weights().table().list()) {
      const Random random(seed, p.name);
      for (Index i = 0; i < p.count; ++i)
        model->weights().values()[p.offset + i] *=
            1 +
            (random.bits(static_cast<std::uint64_t>(i)) & 1 ? 1 : -1) * std::numeric_limits<float>::epsilon();
    }
    model->upload(kEx);
    const std::vector<double> error = differences(*model, results_of(*model), truth);
    for (std::size_t i = 0; i < reach.size(); ++i) reach[i] += error[i] * error[i] / kSamples;
  }
  for (double& r : reach) r = kStudent * std::sqrt(2 * r);
  return reach;
}

// Every gradient is within the tolerance of the native one; where f32 itself does not reach that, within its reach.
struct Comparison {
  double worst = 0;           // difference / allowed
  double largest = 0;         // difference where the tolerance holds
  std::vector<double> loose;  // the differences where it is out of reach
  std::string which;          // the worst
};
Comparison compare(TrainableModel& native, const Try& t, const Result& actual, const Result& expected) {
  const std::vector<double> difference = differences(native, actual, expected);
  Comparison c;
  std::vector<double> reach;
  for (std::size_t i = 0; i < difference.size(); ++i) {
    double allowed = kGradientTolerance;
    if (!(difference[i] <= allowed)) {
      if (reach.empty()) reach = reach_of_f32(t);
      allowed = std::max(allowed, reach[i]);
    }
    if (allowed > kGradientTolerance)
      c.loose.push_back(difference[i]);
    else
      c.largest = std::max(c.largest, difference[i]);
    const double ratio = difference[i] / allowed;
    if (!(ratio <= c.worst)) c.worst = ratio, c.which = native.weights().table().list()[i].name;
  }
  return c;
}

void expect_same(const Try& t, StreamKind stream) {
  const auto native = native_model(t);
  const auto torch = torch_model(t, stream);
  ASSERT_EQ(torch->weights().table().floats(), native->weights().table().floats());
  const Result expected = run_model(*native), actual = run_model(*torch);
  EXPECT_NEAR(actual.loss, expected.loss, kLossTolerance * expected.loss);
  EXPECT_EQ(actual.correct_N, expected.correct_N);
  for (std::size_t n = 0; n < expected.loss_N.size(); ++n)
    EXPECT_NEAR(actual.loss_N[n], expected.loss_N[n], 1e-5) << n;
  EXPECT_EQ(actual.loss_N[3], 0);
  const Comparison c = compare(*native, t, actual, expected);
  EXPECT_LE(c.worst, 1) << c.which;
  const auto largest = std::max_element(c.loose.begin(), c.loose.end());
  std::printf("%-14s loss %.1e, gradients %.1e, out of reach %zu of %zu (%.1e)\n", t.rule.c_str(),
              std::abs(actual.loss / expected.loss - 1), c.largest, c.loose.size(),
              native->weights().table().list().size(), largest == c.loose.end() ? 0 : *largest);
}

std::string rule_name(const testing::TestParamInfo<std::string>& param) {
  std::string name = param.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}
class EveryRuleOnTorch : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Torch, EveryRuleOnTorch, testing::ValuesIn(rule_names()), rule_name);

TEST_P(EveryRuleOnTorch, VerbsLearnTheSame) { expect_same({.rule = GetParam()}, StreamKind::kVerbs); }
TEST_P(EveryRuleOnTorch, FormulasLearnTheSame) { expect_same({.rule = GetParam()}, StreamKind::kFormulas); }

TEST(TorchFormulas, OptionsOfTheDeltaFamily) {
  for (const char* set :
       {"model.gate=two-layer", "model.value=biased", "model.value=linear", "model.compressor=block",
        "model.channel_compressor=convolution", "model.channels=3", "model.k_eps=0.5"})
    for (const StreamKind stream : {StreamKind::kVerbs, StreamKind::kFormulas}) {
      SCOPED_TRACE(set);
      expect_same({.rule = "ddl-cc", .sets = {set}}, stream);
    }
}

// The kernels' text on the CPU, in a whole model: residual pass, RoPE + QK-norm, SwiGLU.
TEST(TorchKernels, WholeModels) {
  for (const char* rule : {"baseline", "ddl-dv1", "ddl-cc", "ddl-cc-noec", "ddl-tc", "wo-cc"}) {
    SCOPED_TRACE(rule);
    expect_same({.rule = rule, .shape = {2, 4}, .width = 32}, StreamKind::kKernels);
  }
  for (const char* set : {"model.channel_compressor=convolution", "model.value=linear", "model.channels=2",
                          "model.k_eps=0.5"}) {
    SCOPED_TRACE(set);
    expect_same({.rule = "ddl-cc", .sets = {set}, .shape = {2, 4}, .width = 32}, StreamKind::kKernels);
  }
}

// The comparison can fail: a norm that is off by a hundred-thousandth.
TEST(TorchEngine, ASmallErrorIsSeen) {
  const Try t{};
  const auto native = native_model(t), torch = torch_model(t);
  const Result expected = run_model(*native), actual = run_model(*torch, 1e-5f);
  EXPECT_GT(compare(*native, t, actual, expected).worst, 1);
}

TEST(TorchEngine, RecomputingChangesNothing) {
  const auto plain = torch_model({});
  const Result expected = run_model(*plain);
  for (const char* what : {"mlp", "block"}) {
    const auto again = torch_model({.sets = {std::string("model.recompute=") + what}});
    const Result actual = run_model(*again);
    EXPECT_EQ(actual.loss, expected.loss);
    for (const double difference : differences(*plain, actual, expected)) EXPECT_LT(difference, 1e-7) << what;
  }
}

TEST(TorchEngine, Bf16IsNearTheNativeBf16) {
  const Try t{.sets = {"model.precision=bf16"}};
  const auto native = native_model(t);
  const Result expected = run_model(*native);
  for (const StreamKind stream : {StreamKind::kVerbs, StreamKind::kFormulas}) {
    const auto torch = torch_model(t, stream);
    const Result actual = run_model(*torch);
    EXPECT_NEAR(actual.loss, expected.loss, 2e-3 * expected.loss);
    double difference = 0, size = 0;
    for (std::size_t i = 0; i < expected.gradients.size(); ++i) {
      difference += std::pow(double{actual.gradients[i]} - double{expected.gradients[i]}, 2);
      size += std::pow(double{expected.gradients[i]}, 2);
    }
    EXPECT_LT(std::sqrt(difference / size), 0.03);  // a few roundings to 8 bits
  }
}

TEST(TorchEngine, ABatchWithoutTargetsIsRefused) {
  const auto torch = torch_model({});
  const Index N = torch->shape().N();
  const auto x = some_tokens(N, 1);
  const std::vector<std::int32_t> none(static_cast<std::size_t>(N), -1);
  EXPECT_THROW(torch->loss({x.data(), none.data()}, {}, kEx), UserError);
}

// The library as the program opens it.

TEST(TorchEngine, IsFoundByName) {
  const Engine& engine = find_engine("torch");
  EXPECT_EQ(engine.name(), "torch");
  ModelConfig m = config_of({});
  m.engine = "torch";
  const Weights weights(m, 1, kEx);
  const auto decoder = make_decoder(weights, {}, kEx);
  const std::vector<std::int32_t> prompt{1, 2, 3};
  const Decoder::Append append{0, prompt};
  decoder->append({&append, 1}, kEx);
  EXPECT_EQ(decoder->logits(0).size(), 211u);
}

TEST(TorchEngine, AGpuThatIsNotThereIsRefused) {
  if (std::filesystem::exists("/dev/nvidia0")) GTEST_SKIP() << "there is a GPU";
  ModelConfig m = config_of({});
  m.engine = "torch";
  choose_device("cuda");
  const std::string message = message_of<UserError>([&] {
    make_trainable(m, {1, 4}, OptimizerConfig{}, 1, kEx);
  });
  EXPECT_TRUE(contains(message, "--device cuda: ") && contains(message, "driver")) << message;
  choose_device("auto");
  EXPECT_NO_THROW(make_trainable(m, {1, 4}, OptimizerConfig{}, 1, kEx));
  EXPECT_THROW(choose_device("gpu"), UserError);
  EXPECT_THROW(choose_device("cuda:x"), UserError);
}

// NCCL as ranks on GPUs open it. Without a GPU that is as far as it goes; it says so, and does not hang.
TEST(Nccl, IsLoadedAndWantsAGpu) {
  if (std::filesystem::exists("/dev/nvidia0")) GTEST_SKIP() << "there is a GPU";
  const std::unique_ptr<Comm> comm(ddl_make_comm({}));  // one rank, on any free port
  const std::string message = message_of<UserError>([&] { comm->reduce_on_gpu(0); });
  if (!nccl_plugin_problem().empty())
    EXPECT_TRUE(contains(message, "./ddl setup cuda")) << message;
  else
    EXPECT_TRUE(contains(message, "no GPUs found")) << message;
}

// A run that begins on one engine, goes on with the other and comes back.
TEST(TorchRuns, ChangeEngines) {
  const TestFolder folder;
  const std::string data = make_data(folder);
  for (const char* rule : {"ddl-cc", "baseline"}) {
    const std::string residual = std::string("model.residual=") + rule;
    const std::string whole = folder / (std::string(rule) + "-whole"),
                      mixed = folder / (std::string(rule) + "-mixed");
    // A rate that does not depend on the number of steps.
    const auto sets = [&](const char* steps) {
      return std::vector<std::string>{residual, "train.lr=0.002", "train.min_lr=0.002", steps};
    };
    run(small_request(data, whole, sets("train.steps=18")));
    run(small_request(data, mixed, sets("train.steps=6")));
    run(resume_request(mixed, {"model.engine=torch", "train.steps=12"}));
    run(resume_request(mixed, {"model.engine=native", "train.steps=18"}));
    const auto expected = records(whole, "step"), actual = records(mixed, "step");
    ASSERT_EQ(expected.size(), 18u);
    ASSERT_EQ(actual.size(), 18u);
    for (std::size_t i = 0; i < 18; ++i)
      EXPECT_NEAR(actual[i].at("loss").get<double>(), expected[i].at("loss").get<double>(), 1e-5) << i;
  }
}

}  // namespace
}  // namespace ddl
