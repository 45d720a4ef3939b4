// model.store_state keeps the state in front of every write instead of walking it back: other memory, the same
// gradients to rounding.
#include <gtest/gtest.h>

#include "model/oracle_model.h"
#include "model/plan.h"

namespace ddl {
namespace {

std::size_t stored_bytes(const std::vector<Arena::Entry>& memory) {
  std::size_t bytes = 0;
  for (const Arena::Entry& entry : memory)
    if (entry.name == "stored states") bytes += entry.bytes;
  return bytes;
}

TEST(StoreState, GivesTheGradientsOfWalkingBack) {
  for (const char* rule : {"ddl-cc", "ddl-tc", "ddl-dv1", "wo-cc"}) {
    ModelConfig walked = model_config({.residual = rule}), stored = walked;
    stored.set("model.store_state=true");
    const auto x = tokens(8, 1), y = tokens(8, 2);
    const BatchView batch{x.data(), y.data()};
    const auto a = trainable(walked, {2, 4}), b = trainable(stored, {2, 4});
    scramble(*a), scramble(*b);
    const double loss = a->loss_and_grad(batch, 1, Exec{});
    EXPECT_EQ(b->loss_and_grad(batch, 1, Exec{}), loss) << "forward is the same";
    const Truth truth = oracle_truth(walked, oracle_parameters(a->weights()), x, y, 2, 4);
    EXPECT_LT(worst_error(loss, *a, truth), 1) << rule;
    EXPECT_LT(worst_error(loss, *b, truth), 1) << rule;
    for (const Param& p : a->weights().table().list())
      EXPECT_LT(rounding_ratio(tensor(a->gradients(), p), tensor(b->gradients(), p), roundings(walked, 8)),
                amplification(truth.gradients.at(p.name), truth.moved.at(p.name)))
          << rule << " " << p.name;
  }
}

// S states of N D C floats, and nothing where states are walked back.
TEST(StoreState, ThePlanShowsTheMemory) {
  ModelConfig m = model_config({.residual = "ddl-cc"});
  const BatchShape shape{2, 8};
  EXPECT_EQ(stored_bytes(plan_model(m, shape).memory), 0u);
  EXPECT_EQ(stored_bytes(trainable(m, shape)->memory()), 0u);
  m.set("model.store_state=true");
  const auto bytes = static_cast<std::size_t>(m.sublayers() * shape.N() * 3 * m.width) * sizeof(float);
  EXPECT_EQ(stored_bytes(plan_model(m, shape).memory), bytes);
  EXPECT_EQ(stored_bytes(trainable(m, shape)->memory()), bytes);
}

}  // namespace
}  // namespace ddl
