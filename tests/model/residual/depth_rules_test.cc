// What is special about decay-x0, highway and attention over depth: identities at the start and at limits, memory,
// what they report.
#include <gtest/gtest.h>

#include "model/oracle_model.h"
#include "model/plan.h"
#include "test_folder.h"

namespace ddl {
namespace {

const BatchShape kDepthBatch{2, 4};

struct DepthStep {
  double loss = 0;
  std::unique_ptr<TrainableModel> model;
};

// Loss and gradients of a batch, with the rule's starting values in `kept` and scrambled numbers elsewhere.
DepthStep depth_step(const ModelConfig& config, const std::vector<std::string>& kept = {}) {
  DepthStep s{0, trainable(config, kDepthBatch)};
  const std::vector<float> start(s.model->weights().values().begin(), s.model->weights().values().end());
  scramble(*s.model);
  for (const Param& p : s.model->weights().table().list())
    for (const std::string& ending : kept)
      if (p.name.ends_with(ending))
        std::copy_n(start.begin() + p.offset, p.count, s.model->weights().values().begin() + p.offset);
  s.model->upload(Exec{});
  const auto x = tokens(kDepthBatch.N(), 1), y = tokens(kDepthBatch.N(), 2);
  s.loss = s.model->loss_and_grad({x.data(), y.data()}, 1, Exec{});
  return s;
}

ModelConfig small_model(const std::string& rule) { return model_config({.residual = rule}); }

std::size_t bytes_named(const std::vector<Arena::Entry>& memory, const std::string& name) {
  std::size_t bytes = 0;
  for (const Arena::Entry& entry : memory)
    if (entry.name == name) bytes += entry.bytes;
  return bytes;
}

TokenSeries find_series(const TrainableModel& model, Index s, const std::string& name) {
  for (const TokenSeries& series : model.series(s))
    if (series.name == name) return series;
  ADD_FAILURE() << "no series " << name;
  return {};
}

TEST(DecayX0, StartsAsTheAdditiveResidual) {
  const DepthStep additive = depth_step(small_model("baseline")),
                  start = depth_step(small_model("decay-x0"), {".state", ".embedding"});
  EXPECT_EQ(start.loss, additive.loss);
  EXPECT_NE(depth_step(small_model("decay-x0")).loss, additive.loss);
  // The gradients too, but for the baseline's walk back.
  const auto x = tokens(kDepthBatch.N(), 1), y = tokens(kDepthBatch.N(), 2);
  const ModelConfig m = small_model("baseline");
  const Truth truth =
      oracle_truth(m, oracle_parameters(additive.model->weights()), x, y, kDepthBatch.B, kDepthBatch.T);
  for (const Param& p : additive.model->weights().table().list()) {
    const Param& own = start.model->weights().table().find(p.name);
    EXPECT_LT(rounding_ratio(tensor(start.model->gradients(), own), tensor(additive.model->gradients(), p),
                             roundings(m, kDepthBatch.N())),
              amplification(truth.gradients.at(p.name), truth.moved.at(p.name)))
        << p.name;
  }
}

TEST(Highway, TheGateStartsAtItsBias) {
  ModelConfig m = small_model("highway");
  for (const double bias : {-2.0, 0.5}) {
    m.set(fmt::format("model.gate_bias={}", bias));
    const DepthStep s =
        depth_step(m, {"highway_attn.weight", "highway_attn.bias", "highway_mlp.weight", "highway_mlp.bias"});
    for (Index sublayer = 0; sublayer < m.sublayers(); ++sublayer) {
      const TokenSeries gate = find_series(*s.model, sublayer, "gate");
      EXPECT_EQ(gate.low, 0);
      EXPECT_EQ(gate.high, 1);
      for (Index n = 0; n < kDepthBatch.N(); ++n)
        EXPECT_NEAR(gate.values[n * gate.stride], 1 / (1 + std::exp(-bias)), 1e-6) << sublayer;
    }
  }
}

// An open gate: every sublayer's output replaces the state, and only the last one reaches the head. So no other
// but the last sublayer's input matters to what the head reads, and the embedding is forgotten.
TEST(Highway, AnOpenGateOverwrites) {
  ModelConfig m = small_model("highway");
  m.set("model.gate_bias=30");
  const std::vector<std::string> gates{"highway_attn.weight", "highway_attn.bias", "highway_mlp.weight",
                                       "highway_mlp.bias"};
  const DepthStep s = depth_step(m, gates);
  // The same network without any residual, by the oracle: x' = h.
  class Overwrite : public ref::PaperRule<double> {
   public:
    using ref::PaperRule<double>::PaperRule;
    ref::Vec<double> write(const ref::Vec<double>&, ref::SublayerTrace<double>& sublayer, const ref::Place&,
                           const ref::Parameters<double>&, Index) const override {
      return sublayer.h_NC;
    }
  };
  auto parameters = oracle_parameters(s.model->weights());
  std::erase_if(parameters, [](const auto& p) { return p.first.find("highway") != std::string::npos; });
  const auto x = tokens(kDepthBatch.N(), 1), y = tokens(kDepthBatch.N(), 2);
  const Overwrite rule(m.width, m.layers, {});
  const double truth =
      ref::Model<double>(oracle_shape(m), rule, parameters).loss(x, y, kDepthBatch.B, kDepthBatch.T);
  EXPECT_LT(rounding_ratio({s.loss}, {truth}, roundings(m, kDepthBatch.N())), 1);
  m.set("model.gate_bias=3");
  EXPECT_GT(rounding_ratio({depth_step(m, gates).loss}, {truth}, roundings(m, kDepthBatch.N())), 1);
}

TEST(StoredStates, AreOnePerSublayer) {
  for (const char* rule : {"decay-x0", "highway"}) {
    const ModelConfig m = small_model(rule);
    const auto bytes = static_cast<std::size_t>(m.sublayers() * kDepthBatch.N() * m.width) * sizeof(float);
    EXPECT_EQ(bytes_named(plan_model(m, kDepthBatch).memory, "stored states"), bytes) << rule;
    EXPECT_EQ(bytes_named(plan_model(m, kDepthBatch).memory, "residual state"), 0u) << rule;
  }
}

// w = 0: every read is the plain mean of its sources, and says so.
TEST(AttnRes, StartsAsThePlainMeanOfItsSources) {
  const std::vector<std::string> kept{".query", ".gain"};
  for (const std::string rule : {"attnres", "attnres-block"}) {
    const ModelConfig m = small_model(rule);
    const DepthStep start = depth_step(m, kept), later = depth_step(m);
    double moved = 0;
    for (Index s = 0; s < m.sublayers(); ++s) {
      const Index sources =
          rule == "attnres" ? 1 + s : 1 + (s + 1) / 2;  // the embedding, and outputs or blocks
      for (const char* name : {"attention to the embedding", "attention to the newest source"}) {
        const TokenSeries even = find_series(*start.model, s, name), own = find_series(*later.model, s, name);
        for (Index n = 0; n < kDepthBatch.N(); ++n) {
          EXPECT_NEAR(even.values[n * even.stride], 1 / static_cast<double>(sources), 1e-6)
              << rule << " " << s;
          moved = std::max(
              moved, std::abs(double{own.values[n * own.stride]} - double{even.values[n * even.stride]}));
        }
      }
    }
    EXPECT_GT(moved, 0.01) << "with a query the weights differ";
  }
}

TEST(AttnRes, BlocksOfOneSublayerAreTheFullForm) {
  ModelConfig m = small_model("attnres-block");
  m.set("model.block_size=1");
  const DepthStep full = depth_step(small_model("attnres")), block = depth_step(m);
  EXPECT_EQ(block.loss, full.loss);
  EXPECT_TRUE(std::equal(full.model->gradients().begin(), full.model->gradients().end(),
                         block.model->gradients().begin(), block.model->gradients().end()));
}

// The mean of the sources is the additive stream divided by their number, however outputs are grouped, and the norm
// takes the number out again, up to its guard (1e-5 beside a square of about 1).
TEST(AttnRes, StartsAsTheAdditiveResidual) {
  const double additive = depth_step(small_model("baseline")).loss;
  for (const char* choice : {"attnres", "model.block_size=1", "model.block_size=2", "model.block_size=4"}) {
    ModelConfig m = small_model("attnres-block");
    if (choice == std::string("attnres"))
      m.use_residual(choice);
    else
      m.set(choice);
    EXPECT_LT(std::abs(depth_step(m, {".query", ".gain"}).loss - additive), 1e-4) << choice;
    EXPECT_GT(std::abs(depth_step(m).loss - additive), 1e-3) << choice;
  }
}

TEST(AttnRes, EveryBlockSizeIsTheOracles) {
  ModelConfig m = small_model("attnres-block");
  for (const Index size : {1, 2, 4}) {
    m.set(fmt::format("model.block_size={}", size));
    EXPECT_LT(worst_error(m), 1) << size;
    EXPECT_LT(worst_decoding_error(m, 9, 2), 1) << size;
  }
  m.layers = 3;  // 6 sublayers
  for (const Index size : {2, 3, 6}) {
    m.set(fmt::format("model.block_size={}", size));
    EXPECT_LT(worst_error(m), 1) << size;
  }
}

TEST(AttnRes, ABlockSizeThatDoesNotFitIsRefusedWithTheNumbers) {
  ModelConfig m = small_model("attnres-block");
  m.layers = 6;
  for (const char* engine : {"native", "reference"}) {
    m.engine = engine;
    const auto refusal = [&](Index size) {
      m.set(fmt::format("model.block_size={}", size));
      return message_of<UserError>([&] { trainable(m, kDepthBatch); });
    };
    EXPECT_TRUE(contains(refusal(5), "model.block_size is 5")) << refusal(5);
    EXPECT_TRUE(contains(refusal(5), "12 sublayers of 6 layers; 4 would"));
    EXPECT_TRUE(contains(refusal(24), "12 would"));
  }
}

// To train, outputs are the network's own, and there is one gradient per source but the last output. To decode, the
// rule keeps the outputs of the tokens of a pass.
TEST(AttnRes, KeepsNoCopyOfWhatTheNetworkKeeps) {
  ModelConfig m = small_model("attnres");
  const auto row = static_cast<std::size_t>(kDepthBatch.N() * m.width) * sizeof(float);
  const auto memory = plan_model(m, kDepthBatch).memory;
  EXPECT_EQ(bytes_named(memory, "stored outputs"), 0u);
  EXPECT_EQ(bytes_named(memory, "block sums"), 0u);
  EXPECT_EQ(bytes_named(memory, "source gradients"), static_cast<std::size_t>(m.sublayers()) * row);
  m.use_residual("attnres-block");
  const auto in_blocks = plan_model(m, kDepthBatch).memory;
  EXPECT_EQ(bytes_named(in_blocks, "block sums"), 2 * row);
  EXPECT_EQ(bytes_named(in_blocks, "source gradients"), 3 * row);
}

}  // namespace
}  // namespace ddl
