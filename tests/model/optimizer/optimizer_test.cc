// The optimizer against its definition in f64: groups, decay, clipping, skipping, averaging.
#include "train/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "core/rng.h"

namespace ddl {
namespace {

ModelConfig small_model() {
  ModelConfig c;
  c.layers = 1, c.width = 16, c.heads = 2, c.vocab = 11, c.context = 4, c.precision = "f32",
  c.residual = "ddl-cc";
  return c;
}

struct Bench {
  ModelConfig model_config;
  TrainConfig config;
  std::unique_ptr<Model> model;
  Arena arena;
  std::unique_ptr<Optimizer> optimizer;

  Bench(const ModelConfig& m, const TrainConfig& t) : model_config(m), config(t), arena(Arena::measuring()) {
    model = make_model(model_config, {1, 4}, Model::Mode::kTrain, 1, Exec{});
    arena = Arena::owning(static_cast<std::size_t>(3 * (model->table().floats() + 16)) * 4);
    optimizer = std::make_unique<Optimizer>(*model, config, arena);
    optimizer->start_average(Exec{});
  }
  void fill_grads(double scale) {
    const Random random(7, "grads");
    for (const Param& p : model->table().list())
      for (Index i = p.offset; i < p.offset + p.count; ++i)
        model->grads()[i] = static_cast<float>(scale * random.normal(static_cast<std::uint64_t>(i)));
  }
  double norm() {
    double sum = 0;
    for (const float g : model->grads()) sum += static_cast<double>(g) * static_cast<double>(g);
    return std::sqrt(sum);
  }
};

TEST(Optimizer, MatchesTheDefinitionPerGroup) {
  for (const bool mup : {false, true}) {
    ModelConfig m = small_model();
    m.mup = mup, m.base_width = 64;
    TrainConfig t;
    t.weight_decay = 0.3, t.clip = 0.5;
    Bench b(m, t);
    const std::vector<float> before(b.model->params().begin(), b.model->params().end());
    b.fill_grads(0.1);
    const std::vector<float> g(b.model->grads().begin(), b.model->grads().end());
    const double norm = b.norm(), lr = 0.01;
    ASSERT_GT(norm, t.clip);
    const auto update = b.optimizer->step(lr, Exec{});
    EXPECT_TRUE(update.applied);
    EXPECT_NEAR(update.grad_norm, norm, 1e-5 * norm);
    Index decayed = 0, plain = 0, hidden = 0;
    for (const Param& p : b.model->table().list()) {
      const bool matrix = p.name.find("c_") != std::string::npos;  // attention and MLP weights
      EXPECT_TRUE(!matrix || (p.decays && p.hidden_matrix)) << p.name;
      const double rate = lr * (mup && p.hidden_matrix ? 4.0 : 1.0);
      for (Index i = p.offset; i < p.offset + p.count; ++i) {
        const double clipped = static_cast<double>(g[i]) * t.clip / norm;
        // The first step: both bias corrections undo the decay, so the move is lr g / (|g| + eps).
        const double expected =
            static_cast<double>(before[i]) * (1 - (p.decays ? rate * t.weight_decay : 0)) -
            rate * clipped / (std::abs(clipped) + t.eps);
        ASSERT_NEAR(b.model->params()[i], expected, 2e-6) << p.name << " " << i;
      }
      decayed += p.decays, plain += !p.decays, hidden += p.hidden_matrix;
    }
    EXPECT_GT(decayed, 0);
    EXPECT_GT(plain, 0);
    EXPECT_GT(hidden, 0);
    for (const float left : b.model->grads()) ASSERT_EQ(left, 0);
  }
}

TEST(Optimizer, DoesNotClipBelowTheLimitOrWithoutOne) {
  for (const double clip : {0.0, 1e6}) {
    TrainConfig t;
    t.clip = clip;
    Bench b(small_model(), t);
    b.fill_grads(10);
    const float g0 = b.model->grads()[0];
    b.optimizer->step(0.01, Exec{});
    EXPECT_FLOAT_EQ(b.optimizer->state().mean[0], static_cast<float>(0.1 * static_cast<double>(g0)));
  }
}

TEST(Optimizer, SkipsWhatIsNotFinite) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Bench b(small_model(), {});
    b.fill_grads(1);
    b.optimizer->step(0.01, Exec{});
    const std::vector<float> before(b.model->params().begin(), b.model->params().end());
    const float mean = b.optimizer->state().mean[3];
    b.fill_grads(1);
    b.model->grads()[5] = bad;
    EXPECT_FALSE(b.optimizer->step(0.01, Exec{}).applied);
    EXPECT_EQ(b.optimizer->updates(), 1);
    EXPECT_EQ(b.optimizer->state().mean[3], mean);
    EXPECT_EQ(std::memcmp(before.data(), b.model->params().data(), before.size() * 4), 0);
    for (const float left : b.model->grads()) ASSERT_EQ(left, 0);
  }
}

TEST(Optimizer, AverageFollowsAndSwaps) {
  TrainConfig t;
  t.ema = 0.2;  // below the early limit of 2/11 = 0.18 only from the second update on
  Bench b(small_model(), t);
  const float start = b.model->params()[0];
  b.fill_grads(1);
  b.optimizer->step(0.1, Exec{});
  const float moved = b.model->params()[0];
  const double keep = 2.0 / 11;
  EXPECT_NEAR(b.optimizer->state().average[0], moved + keep * (start - moved), 1e-6);
  const float average = b.optimizer->state().average[0];
  b.optimizer->swap_average(Exec{});
  EXPECT_EQ(b.model->params()[0], average);
  b.optimizer->swap_average(Exec{});
  EXPECT_EQ(b.model->params()[0], moved);
}

}  // namespace
}  // namespace ddl
