// A guard on learning itself: every rule must reach a stated loss in a short run.
#include <gtest/gtest.h>

#include <cstdlib>

#include "model/optimizer/optimizer.h"
#include "model/residual/registry.h"
#include "small_run.h"
#include "train/trainer.h"

namespace ddl {
namespace {

constexpr Index kSteps = 200;

// Over seeds 1 to 4 (AVX2, f32) the loss after training was 1.0205 to 1.0424 for baseline and 1.0093 to 1.0440 for the
// other 19 rules; it starts near the logarithm of the vocabulary, above 5. The bound is the worst of the 80 runs and
// four times the usual spread over seeds (0.01): a rule that has stopped learning, or learns late, is above it.
constexpr double kStatedLoss = 1.08;

double loss_after_training(const Dataset& data, const std::string& residual, Index seed,
                           const std::string& optimizer = "adamw") {
  RunConfig c = load_run_config(
      {"", "", "",
       small_sets({"model.residual=" + residual, "train.lr=0.004", "train.warmup=20",
                   fmt::format("train.steps={}", kSteps), fmt::format("train.seed={}", seed), "train.batch=8",
                   "eval.windows=32", "checkpoint.background=false", "train.optimizer=" + optimizer})});
  resolve_with_data(c, data, kOneThread);
  Trainer trainer(c, data, kOneThread);
  for (Index i = 0; i < kSteps; ++i) trainer.step();
  return trainer.validate()["loss"].get<double>();
}

class Learning : public testing::TestWithParam<std::string> {};

TEST_P(Learning, ReachesTheStatedLoss) {
  const TestFolder folder;
  const Dataset data = Dataset::open(make_data(folder, "data", 600), kOneThread);
  const char* seeds = std::getenv("DDL_LEARNING_SEEDS");  // to set the bound anew: how many seeds to print
  for (Index seed = 1; seed <= (seeds ? std::atol(seeds) : 1); ++seed) {
    const double loss = loss_after_training(data, GetParam(), seed);
    if (seeds) fmt::print("{} seed {}: {:.4f}\n", GetParam(), seed, loss);
    EXPECT_LT(loss, kStatedLoss);
  }
}

std::string test_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& c : name)
    if (c == '-') c = '_';
  return name;
}

// With the rate that was chosen for AdamW; over seeds 1 to 4 Muon's loss was 1.0111 to 1.0257.
class LearningWith : public testing::TestWithParam<std::string> {};

TEST_P(LearningWith, ReachesTheStatedLoss) {
  const TestFolder folder;
  const Dataset data = Dataset::open(make_data(folder, "data", 600), kOneThread);
  const char* seeds = std::getenv("DDL_LEARNING_SEEDS");
  for (const char* residual : {"baseline", "ddl-cc"})
    for (Index seed = 1; seed <= (seeds ? std::atol(seeds) : 1); ++seed) {
      const double loss = loss_after_training(data, residual, seed, GetParam());
      if (seeds) fmt::print("{} seed {}: {:.4f}\n", residual, seed, loss);
      EXPECT_LT(loss, kStatedLoss) << residual;
    }
}

std::vector<std::string> optimizers_but_adamw() {  // which is every rule's
  std::vector<std::string> names = optimizer_names();
  std::erase(names, "adamw");
  return names;
}

INSTANTIATE_TEST_SUITE_P(EveryOptimizer, LearningWith, testing::ValuesIn(optimizers_but_adamw()), test_name);
INSTANTIATE_TEST_SUITE_P(EveryRule, Learning, testing::ValuesIn(rule_names()), test_name);

}  // namespace
}  // namespace ddl
