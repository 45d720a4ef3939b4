#include "study/records.h"

#include <gtest/gtest.h>

#include <limits>

#include "study_testing.h"

namespace ddl {
namespace {

TrialRecord example(const Study& study) {
  TrialRecord record =
      make_trial_record(study, {"XS", "ddl-cc", Stage::kConfirm, 0.0123, 0.5, 107}, 3.0000000000000004);
  record.parameters = 1234, record.threads = 1, record.spikes = 2;
  record.training = {{10, 1000, 5.5}, {20, 2000, std::numeric_limits<double>::infinity()}};
  record.validation = {{20, 2000, 4.25}};
  record.settings = {"train.lr=0.0123"};
  return record;
}

TEST(Records, ComeBackAsTheyWereWritten) {
  const TestFolder folder;
  const Study study = make_study(folder, study_text());
  const TrialRecord record = example(study);
  Records::write(folder / "records", record);
  const Records back = Records::read(folder / "records", study);
  const TrialRecord* found = back.find(record.trial);
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(to_line(found->json()), to_line(record.json()));
  EXPECT_EQ(found->endpoints.back().loss, 3.0000000000000004);
  EXPECT_EQ(found->training[1].loss, std::numeric_limits<double>::infinity());
}

// The longest budget diverged after a shorter one had ended well.
TEST(Records, ARunThatDivergedIsInfinitelyBad) {
  const TestFolder folder;
  TrialRecord record = example(make_study(folder, study_text()));
  EXPECT_EQ(record.result(StudyMetric::kLoss), 3.0000000000000004);
  record.diverged = true;
  EXPECT_EQ(record.result(StudyMetric::kLoss), std::numeric_limits<double>::infinity());
}

TEST(Records, WhatIsDamagedOrOfAnotherStudyIsLeftOutWithAReason) {
  const TestFolder folder;
  const Study study = make_study(folder, study_text());
  const std::string records = folder / "records";
  TrialRecord foreign = example(study);
  foreign.study_hash = "0123456789abcdef";
  Records::write(records, foreign);
  write_file_atomic(records + "/cut.json", "{\"format\": \"ddl-tr");
  write_file_atomic(records + "/other.json", "{\"format\": \"ddl-trial\", \"study\": 3}");
  std::vector<std::string> problems;
  EXPECT_TRUE(Records::read(records, study, &problems).all().empty());
  ASSERT_EQ(problems.size(), 3u);
  std::string all = problems[0] + problems[1] + problems[2];
  for (const char* part : {"another study", "no JSON object", "'study' is 3"})
    EXPECT_NE(all.find(part), std::string::npos) << all;
  EXPECT_TRUE(Records::read(folder / "none", study).all().empty());
}

}  // namespace
}  // namespace ddl
