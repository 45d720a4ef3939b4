// What a person sees of a run.
#include "train/console.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/record.h"
#include "test_folder.h"

namespace ddl {
namespace {

std::string shown(const Json& record) {
  testing::internal::CaptureStdout();
  Console(Console::Style::kPlain, 0, 100).show(record);
  return testing::internal::GetCapturedStdout();
}

// In a record that was not written to a file yet, NaN is a number.
TEST(Console, SaysWhatIsNotFinite) {
  Json step = make_record("step");
  step.update(Json{{"step", 3}, {"loss", 2.5}, {"grad_norm", -NAN}, {"lr", 1e-3}});
  step.update(Json{{"tokens_per_s", 1234.0}, {"step_s", 0.4}, {"skipped", true}});
  EXPECT_EQ(shown(step),
            "step   3/100 | loss 2.5000 | norm not finite | lr 1.00e-03 | 1.2 k tok/s | 0:39 left | update "
            "skipped: the loss or its gradient is not finite\n");
  step["loss"] = nullptr;
  EXPECT_TRUE(contains(shown(step), "loss not finite | norm not finite"));

  Json validation = make_record("validation");
  validation.update(Json{{"step", 3}, {"loss", NAN}, {"perplexity", NAN}, {"best", false}, {"seconds", 0.5}});
  EXPECT_EQ(shown(validation), "  validation at step 3: loss not finite [0.5 s]\n");
  validation["loss"] = 1000.0, validation["perplexity"] = INFINITY;
  EXPECT_EQ(shown(validation), "  validation at step 3: loss 1000.0000, perplexity not finite [0.5 s]\n");
}

TEST(Console, ShowsTheShareOfTheFloorOnlyWhereItMeansSomething) {
  Json step = make_record("step");
  step.update(Json{{"step", 3}, {"loss", 2.5}, {"grad_norm", 1.0}, {"lr", 1e-3}});
  step.update(Json{{"tokens_per_s", 1234.0}, {"step_s", 0.4}, {"floor_share", 0.85}});
  EXPECT_TRUE(contains(shown(step), "| 85% of floor |"));
  step.erase("floor_share");
  step["floor_busy"] = true;
  EXPECT_TRUE(contains(shown(step), "| floor measured on a busy machine |"));
}

}  // namespace
}  // namespace ddl
