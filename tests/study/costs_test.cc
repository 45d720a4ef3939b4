#include "study/costs.h"

#include <gtest/gtest.h>

#include "study_testing.h"

namespace ddl {
namespace {

TEST(RecordedSpeed, AFewPausedRunsDoNotMatter) {
  const TestFolder folder;
  const Study study = make_study(folder, study_text());
  Records records;
  EXPECT_EQ(recorded_speed(records), 0);
  for (Index seed = 101; seed <= 105; ++seed) {
    TrialRecord record = make_trial_record(study, {"XS", "ddl-cc", Stage::kConfirm, 0.01, 1, seed}, 4);
    record.endpoints.back().flops = 6000;
    record.endpoints.back().seconds = seed == 102 || seed == 104 ? 60000 : 2;  // two were stopped overnight
    records.add(record);
  }
  EXPECT_EQ(recorded_speed(records), 3000);
}

}  // namespace
}  // namespace ddl
