// ddl-ew contains ddl and the write-only control.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "model/oracle_model.h"

namespace ddl {
namespace {

double loss_of(
    const std::string& rule, void (*change)(Weights&) = [](Weights&) {}) {
  const ModelConfig m = model_config({.residual = rule});
  const auto model = make_trainable(m, {2, 4}, {}, 5, Exec{});
  change(model->weights());
  model->upload(Exec{});
  const auto x = tokens(8, 1), y = tokens(8, 2);
  return model->loss({x.data(), y.data()}, {}, Exec{});
}

// Both gates draw the values of ddl's gate, and equal gates give ddl's arithmetic.
TEST(EraseWrite, StartsAsDeltaToTheLastBit) {
  for (const char* kind : {"dv1", "cc"})
    EXPECT_EQ(loss_of(std::string("ddl-ew-") + kind), loss_of(std::string("ddl-") + kind)) << kind;
}

// A very negative bias closes the erase gate: 2 sigmoid(-100) is 0 in f32.
TEST(EraseWrite, WithTheEraseGateClosedIsWriteOnly) {
  for (const char* kind : {"dv1", "cc"}) {
    const double closed = loss_of(std::string("ddl-ew-") + kind, [](Weights& weights) {
      for (const Param& p : weights.table().list())
        if (p.name.ends_with("beta_erase.bias")) weights.tensor(p.name)[0] = -100;
    });
    EXPECT_NEAR(closed, loss_of(std::string("wo-") + kind), 1e-6) << kind;
    EXPECT_NE(closed, loss_of(std::string("ddl-") + kind)) << kind;
  }
}

}  // namespace
}  // namespace ddl
