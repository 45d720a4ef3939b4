// The coordinate check of mup: with hidden learning rates and logits scaled by base / width, neither the
// scale of what flows through the network nor the effect of one update of its hidden matrices may drift with
// the width. (The logits at the start are not held: a random head shrinks them like 1 / sqrt(width), as mup
// means it to.)
#include <gtest/gtest.h>

#include <cmath>

#include "core/rng.h"
#include "kernels/adamw.h"
#include "model/model.h"

namespace ddl {
namespace {

struct Coordinates {
  double logit;   // rms of the gates' logits over sublayers: a hidden unit like any other (delta rules)
  double effect;  // rms over tokens of the change of the loss by one update of the hidden matrices
};

Coordinates measure(Index width, const char* residual, bool scale_rates) {
  ModelConfig m;
  m.layers = 1, m.width = width, m.heads = width / 64, m.vocab = 64, m.context = 32, m.residual = residual;
  m.precision = "f32", m.mup = true, m.base_width = 256;
  const Index B = 1, T = 32, N = B * T;
  const Exec ex{.threads = 2};
  const auto model = make_model(m, {B, T}, Model::Mode::kTrain, 1, ex);
  std::vector<std::int32_t> x(N), y(N);
  const Random random(1, "mup");
  for (Index n = 0; n < N; ++n) {
    x[n] = static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(n), 64));
    y[n] = static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(n + N), 64));
  }
  std::vector<float> before(N), after(N);
  model->loss({x.data(), y.data()}, {before.data(), nullptr}, ex);
  model->loss_and_grad({x.data(), y.data()}, 1, ex);
  double squares = 0;
  for (Index s = 0; s < m.sublayers(); ++s)
    if (const GateTrace trace = model->trace(s); trace.beta_N)
      for (Index n = 0; n < N; ++n) squares += std::pow(std::log(trace.beta_N[n] / (2 - trace.beta_N[n])), 2);
  const double logit = std::sqrt(squares / static_cast<double>(N * m.sublayers()));
  for (const Param& p : model->table().list()) {
    if (!p.hidden_matrix) continue;
    std::vector<float> first(p.count), second(p.count);
    AdamW adam;
    const double ratio = static_cast<double>(m.base_width) / static_cast<double>(width);
    adam.lr = 1e-5 * (scale_rates ? ratio : 1);
    // Small enough that the change of the loss is linear in it.
    adamw_step(&model->params()[p.offset], first.data(), second.data(), nullptr, &model->grads()[p.offset],
               true, adam, p.count, ex);
  }
  model->loss({x.data(), y.data()}, {after.data(), nullptr}, ex);
  double change = 0;
  for (Index n = 0; n < N; ++n) change += std::pow(after[n] - before[n], 2) / static_cast<double>(N);
  return {logit, std::sqrt(change)};
}

// Widths span a factor of eight.
TEST(Mup, ScalesDoNotDriftWithWidth) {
  for (const char* residual : {"baseline", "ddl-cc"}) {
    std::vector<Coordinates> at;
    for (Index width : {128, 256, 512, 1024}) {
      at.push_back(measure(width, residual, true));
      std::printf("%s width %td: gate logit %.4f effect %.4f\n", residual, width, at.back().logit,
                  at.back().effect);
    }
    for (const Coordinates& a : at)
      for (const Coordinates& b : at) {
        EXPECT_LT(a.effect, 2 * b.effect) << residual;
        EXPECT_LE(a.logit, 2 * b.logit) << residual;
      }
    // The mutant: rates that do not scale.
    const double drift = measure(1024, residual, false).effect / measure(128, residual, false).effect;
    std::printf("%s without scaling: x%.1f\n", residual, drift);
    EXPECT_GT(drift, 4) << residual;
  }
}

}  // namespace
}  // namespace ddl
