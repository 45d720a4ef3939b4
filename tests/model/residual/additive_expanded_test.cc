// ihc: what its starting values promise.
#include <gtest/gtest.h>

#include <cmath>

#include "model/oracle_model.h"

namespace ddl {
namespace {

// With e = 0 and B = 1 every plane is the ordinary stream, and their average is read: the baseline's function.
TEST(AdditiveExpanded, WithoutItsDynamicPartIsTheBaseline) {
  const ModelConfig expanded = model_config({.residual = "ihc"}),
                    plain = model_config({.residual = "baseline"});
  const auto a = make_trainable(expanded, {2, 4}, {}, 5, Exec{}),
             b = make_trainable(plain, {2, 4}, {}, 5, Exec{});
  const auto x = tokens(8, 1), y = tokens(8, 2);
  const auto loss = [&](TrainableModel& model) { return model.loss({x.data(), y.data()}, {}, Exec{}); };
  EXPECT_GT(std::abs(loss(*a) - loss(*b)), 1e-6);
  for (const Param& p : a->weights().table().list())
    if (p.name.ends_with("scale.bias")) a->weights().tensor(p.name)[0] = 0;
  a->upload(Exec{});
  EXPECT_NEAR(loss(*a), loss(*b), 1e-6);
}

// Planes that start equal must not stay equal: the gradients of the compressor's rows differ.
TEST(AdditiveExpanded, PlanesGetDifferentGradients) {
  const ModelConfig m = model_config({.residual = "ihc"});
  const auto model = make_trainable(m, {2, 4}, {}, 5, Exec{});
  const auto x = tokens(8, 1), y = tokens(8, 2);
  model->loss_and_grad({x.data(), y.data()}, 1, Exec{});
  const Param& p = model->weights().table().find("readout.weight");
  const auto gradient = tensor(model->gradients(), p);
  const auto C = static_cast<std::size_t>(m.width);
  double apart = 0;
  for (std::size_t i = 0; i < C; ++i) apart += std::abs(gradient[i] - gradient[C + i]);
  EXPECT_GT(apart, 1e-6);
}

}  // namespace
}  // namespace ddl
