// The coordinate check of mup: with hidden learning rates and logits scaled by base / width, the size of the
// logits at the start and the effect of one update must not drift with the width.
#include <gtest/gtest.h>

#include <cmath>

#include "core/rng.h"
#include "kernels/adamw.h"
#include "model/model.h"

namespace ddl {
namespace {

struct Coordinates {
  double spread;  // rms over tokens of the loss around its mean: follows the scale of the logits
  double effect;  // rms over tokens of the change of the loss by one update
};

Coordinates measure(Index width, const char* residual, bool scale_rates) {
  ModelConfig m;
  m.layers = 2, m.width = width, m.heads = width / 64, m.vocab = 64, m.context = 32, m.residual = residual;
  m.precision = "f32", m.mup = true, m.base_width = 256;
  const Index B = 2, T = 32, N = B * T;
  const Exec ex{.threads = 2};
  const auto model = make_model(m, {B, T}, Model::Mode::kTrain, 1, ex);
  std::vector<std::int32_t> x(N), y(N);
  const Random random(1, "mup");
  for (Index n = 0; n < N; ++n) {
    x[n] = static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(n), 64));
    y[n] = static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(n + N), 64));
  }
  std::vector<float> before(N), after(N);
  const double mean = model->loss({x.data(), y.data()}, {before.data(), nullptr}, ex);
  model->loss_and_grad({x.data(), y.data()}, 1, ex);
  for (const Param& p : model->table().list()) {
    std::vector<float> first(p.count), second(p.count);
    AdamW adam;
    const double ratio = static_cast<double>(m.base_width) / static_cast<double>(width);
    adam.lr = 1e-3 * (p.hidden_matrix && scale_rates ? ratio : 1);
    adamw_step(&model->params()[p.offset], first.data(), second.data(), nullptr, &model->grads()[p.offset],
               true, adam, p.count, ex);
  }
  model->loss({x.data(), y.data()}, {after.data(), nullptr}, ex);
  Coordinates c{0, 0};
  for (Index n = 0; n < N; ++n) {
    c.spread += std::pow(before[n] - mean, 2) / static_cast<double>(N);
    c.effect += std::pow(after[n] - before[n], 2) / static_cast<double>(N);
  }
  return {std::sqrt(c.spread), std::sqrt(c.effect)};
}

// Widths span a factor of eight. Without scaling, one update's effect grows about in proportion to the width;
// with it, it stays within a factor of two.
TEST(Mup, ScalesDoNotDriftWithWidth) {
  for (const char* residual : {"baseline", "ddl-cc"}) {
    std::vector<Coordinates> at;
    for (Index width : {128, 256, 512, 1024}) at.push_back(measure(width, residual, true));
    for (std::size_t i = 0; i < at.size(); ++i)
      for (std::size_t j = 0; j < at.size(); ++j) {
        EXPECT_LT(at[i].effect, 2 * at[j].effect) << residual << " widths " << i << " " << j;
        EXPECT_LT(at[i].spread, 2 * at[j].spread) << residual << " widths " << i << " " << j;
      }
    // The mutant: rates that do not scale.
    EXPECT_GT(measure(1024, residual, false).effect / measure(128, residual, false).effect,
              2 * at[3].effect / at[0].effect)
        << residual;
  }
}

}  // namespace
}  // namespace ddl
