// The arithmetic of `ddl plan`, by hand.
#include "bench/step_model.h"

#include <gtest/gtest.h>

#include "bench/step_work.h"
#include "core/error.h"
#include "model/plan.h"
#include "train/run_config.h"

namespace ddl::step_model_test {

// Round numbers: a teraflop, a hundred gigabytes per second, ten to a neighbour.
const Device kDevice{.name = "x", .flops = 1e12, .memory_rate = 1e11, .link_rate = 1e10, .matmul_share = 0.5};

StepWork work() {
  StepWork w;
  w.micro_tokens = 1000;
  w.flops_forward = 1e8, w.flops_backward = 2e8;
  w.bytes_forward = 1e6, w.bytes_backward = 3e6;
  w.parameters = 1e8, w.update_bytes = 3.4e9, w.gradient_bytes = 4e8;
  w.tail_share = 0.25;
  return w;
}

TEST(StepModel, RingsWithinAndBetweenMachines) {
  EXPECT_DOUBLE_EQ(all_reduce_seconds(4e8, kDevice, {.nodes = 1, .devices = 1}), 0);
  EXPECT_DOUBLE_EQ(all_reduce_seconds(4e8, kDevice, {.nodes = 1, .devices = 4}), 1.5 * 4e8 / 1e10);
  EXPECT_DOUBLE_EQ(all_reduce_seconds(4e8, kDevice, {.nodes = 2, .devices = 8, .node_link_rate = 1e9}),
                   1.5 * 4e8 / 1e10 + 4e8 / 1e9);
}

TEST(StepModel, OneDevice) {
  const StepTime t = estimate_step(work(), kDevice, {.accumulate = 3}, 3e8);
  EXPECT_DOUBLE_EQ(t.matmul_s, 0.6);  // 1000 x 3e8 at half a teraflop
  EXPECT_DOUBLE_EQ(t.memory_s, 0.04);
  EXPECT_DOUBLE_EQ(t.update_s, 0.034);
  EXPECT_EQ(t.exposed_s, 0);
  EXPECT_DOUBLE_EQ(t.step_s, 3 * 0.64 + 0.034);
  EXPECT_DOUBLE_EQ(t.tokens_per_s, 3000 / t.step_s);
  EXPECT_DOUBLE_EQ(t.mfu, 3e8 * 3000 / t.step_s / 1e12);
}

TEST(StepModel, TheBackwardPassHidesAllButTheTail) {
  const Cluster two{.devices = 2, .accumulate = 4};
  const StepTime t = estimate_step(work(), kDevice, two, 3e8);
  EXPECT_DOUBLE_EQ(t.communication_s, 0.04);
  EXPECT_DOUBLE_EQ(t.exposed_s, 0.01) << "a quarter is final only at the end";
  EXPECT_DOUBLE_EQ(t.step_s, 2 * 0.64 + 0.034 + 0.01);
  Device slow_link = kDevice;
  slow_link.link_rate = 1e8;  // 4 s of communication, 2/3 of 0.64 s to hide it in
  EXPECT_NEAR(estimate_step(work(), slow_link, two, 3e8).exposed_s, 4 - 0.64 * 2 / 3, 1e-12);
}

// Ranks on all cores of a machine: nothing is left to send while they compute.
TEST(StepModel, SumsThatNothingHides) {
  const Cluster two{.devices = 2, .accumulate = 4, .hides_sums = false};
  EXPECT_DOUBLE_EQ(estimate_step(work(), kDevice, two, 3e8).exposed_s, 0.04);
}

TEST(StepModel, ExponentialsCountWhereTheirRateIsKnown) {
  StepWork w = work();
  w.exponentials = 2e4;
  EXPECT_DOUBLE_EQ(estimate_step(w, kDevice, {}, 3e8).micro_s, 0.64);
  Device cpu = kDevice;
  cpu.exp_rate = 1e9;
  EXPECT_DOUBLE_EQ(estimate_step(w, cpu, {}, 3e8).micro_s, 0.64 + 0.02);
}

TEST(StepModel, SharedStateUpdatesItsPartAndSendsIt) {
  const StepTime t =
      estimate_step(work(), kDevice, {.devices = 2, .accumulate = 2, .shared_state = true}, 3e8);
  EXPECT_DOUBLE_EQ(t.update_s, 0.017);
  EXPECT_DOUBLE_EQ(t.exposed_s, 0.01 + 0.02);
}

TEST(StepModel, MeasuredProductsReplaceTheirFlops) {
  StepWork w = work();
  w.micro_seconds = 0.5;
  EXPECT_DOUBLE_EQ(estimate_step(w, kDevice, {}, 3e8).micro_s, 0.54);
}

TEST(StepWork, ComesFromTheShapes) {
  RunConfig config =
      load_run_config({"small", "", "", {"train.batch=2", "model.residual=ddl-cc", "model.precision=bf16"}});
  config.model.vocab = 50304;
  const PlannedStep step = plan_step(config, {});
  const ModelPlan plan = plan_model(config.model, {2, config.context()});
  EXPECT_EQ(step.work.micro_tokens, 2 * 1024);
  EXPECT_EQ(step.useful_flops, plan.forward.total() + plan.backward.total());
  EXPECT_EQ(step.work.gradient_bytes, 4.0 * static_cast<double>(plan.table.parameter_count()));
  EXPECT_EQ(step.state_bytes, 4 * 4 * 768);
  // 12 layers; the embedding of 50304 x 768 is the greatest part of what becomes final at the end.
  EXPECT_GT(step.work.tail_share, 0.25);
  EXPECT_LT(step.work.tail_share, 0.4);
  // The state alone, twice forward and four times backward in each of 24 sublayers.
  EXPECT_GT(step.work.bytes_forward + step.work.bytes_backward, 24 * 6 * step.state_bytes);
  EXPECT_LT(step.work.bytes_forward + step.work.bytes_backward, 24 * 6 * step.state_bytes * 2);
  // 12 layers of 6 heads with 512.5 scores on average and 2048 sigmoids, twice, and the loss.
  EXPECT_EQ(step.work.exponentials, 2 * 12 * (6 * 512.5 + 2048) + 50304);
  const PlannedStep shared = plan_step(config, {.devices = 4, .shared_state = true});
  EXPECT_LT(shared.memory_bytes, step.memory_bytes);
}

// Channels and streams count, whatever a rule calls them; attention over depth reads 2 to 25 sources of 24 sublayers.
TEST(StepWork, KnowsTheStateOfEveryRule) {
  const auto state = [](const std::string& rule) {
    RunConfig config = load_run_config({"small", "", "", {"model.residual=" + rule, "model.vocab=64"}});
    return plan_step(config, {}).state_bytes / (4 * 768);
  };
  for (const char* rule : {"baseline", "ddl-dv1", "norm-write", "decay-x0", "highway"})
    EXPECT_EQ(state(rule), 1) << rule;
  for (const char* rule : {"ddl-cc", "wo-tc", "ihc", "hc", "hc-static", "mhc"})
    EXPECT_EQ(state(rule), 4) << rule;
  EXPECT_EQ(state("attnres"), 13.5);
}

TEST(StepModel, UnknownDevicesAreRefusedByName) {
  EXPECT_EQ(find_device("h200").memory_bytes, 141e9);
  try {
    find_device("h20");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("nearest: h200"), std::string::npos) << error.what();
  }
}

}  // namespace ddl::step_model_test
