// Whole studies with real, very small runs.
#include "study/study_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "core/error.h"
#include "small_run.h"
#include "small_study.h"
#include "study/agenda.h"
#include "study/answers.h"
#include "study/trial_runner.h"
#include "study/tuning.h"
#include "train/run_folder.h"

namespace ddl {
namespace {

TEST(StudyRun, AnswersItsQuestionAndDoesNothingTwice) {
  SmallStudy s;
  open_study_folder(s.out, s.study);
  EXPECT_EQ(s.work(), 0);
  const Records records = Records::read(s.out.records(), s.study);
  EXPECT_TRUE(make_agenda(s.study, records).trials.empty());
  const Answer answer = answer_questions(s.study, records).front();
  EXPECT_GE(answer.differences.size(), 2u);
  EXPECT_EQ(count(records, "ddl-cc", Stage::kConfirm), std::ssize(answer.differences));
  EXPECT_TRUE(std::filesystem::is_empty(s.out.claims()));
  // Again: every record is there, so no run is opened.
  std::filesystem::remove_all(s.out.runs());
  EXPECT_EQ(s.work(), 0);
  EXPECT_FALSE(std::filesystem::exists(s.out.runs()));
  EXPECT_NE(answers_screen(s.study, records).find("ddl-cc - baseline"), std::string::npos);
}

// One run per budget: the longer one branches off the shorter, and is the run it would have been from step 0.
TEST(StudyRun, BudgetsShareTheirStepsWithoutChangingABit) {
  SmallStudy s;
  const Dataset data = Dataset::open(s.study.data, kOneThread);
  const TrialRunner runner{s.study, data, s.out.runs(), "test 1", s.signals, kOneThread};
  const Trial trial{"XS", "ddl-cc", Stage::kConfirm, 0.016, 1, 101};
  const auto record = runner.run(trial, [](const std::string& problem) { FAIL() << problem; });
  ASSERT_TRUE(record.has_value());
  ASSERT_EQ(record->endpoints.size(), 2u);
  EXPECT_EQ(record->endpoints[0].tokens, 1920);
  EXPECT_EQ(record->endpoints[1].tokens, 3840);
  RunRequest whole;
  whole.data = s.study.data, whole.out = s.folder / "whole";
  whole.sets = run_settings(s.study, trial, 3840);
  whole.style = Console::Style::kSilent;
  run(whole);
  const auto end = [](const std::string& run) {
    return contents_of(run + "/checkpoints/step-00000020/model.safetensors");
  };
  EXPECT_EQ(end(whole.out), end(run_folder(runner.runs, trial, 3840)));
  // The shared steps were not trained twice: the branch's own records begin after them.
  EXPECT_EQ(records(run_folder(runner.runs, trial, 3840), "start").size(),
            2u);  // the trunk's, which was copied, and its own
}

TEST(StudyRun, ARunThatDivergesIsAResult) {
  SmallStudy s;
  const Dataset data = Dataset::open(s.study.data, kOneThread);
  Study wild = s.study;
  for (Arm& arm : wild.arms) arm.settings.push_back("train.clip=0");
  const TrialRunner runner{wild, data, s.out.runs(), "test 1", s.signals, kOneThread};
  const auto record = runner.run({"XS", "baseline", Stage::kTune, 1e6, 1, 1}, [](const std::string&) {});
  ASSERT_TRUE(record.has_value());
  EXPECT_TRUE(record->diverged);
  EXPECT_EQ(record->result(StudyMetric::kLoss), std::numeric_limits<double>::infinity());
}

// A run that ended, and whose process was killed before the record was written.
TEST(StudyRun, AFinishedRunIsNotTrainedAgain) {
  SmallStudy s;
  const Dataset data = Dataset::open(s.study.data, kOneThread);
  const TrialRunner runner{s.study, data, s.out.runs(), "test 1", s.signals, kOneThread};
  const Trial trial{"XS", "baseline", Stage::kConfirm, 0.016, 1, 101};
  const auto first = runner.run(trial, [](const std::string&) {});
  const auto again = runner.run(trial, [](const std::string& problem) { FAIL() << problem; });
  ASSERT_TRUE(first && again);
  EXPECT_EQ(again->endpoints[0].loss, first->endpoints[0].loss);
  EXPECT_EQ(again->endpoints[1].tokens, first->endpoints[1].tokens);
  const auto steps = records(run_folder(runner.runs, trial, 3840), "step");
  EXPECT_EQ(steps.size(), 20u);
}

// Somebody trains there: neither damage nor a reason to give the study up.
TEST(StudyRun, ARunOfAnotherProcessIsLeftAlone) {
  SmallStudy s;
  const Dataset data = Dataset::open(s.study.data, kOneThread);
  const TrialRunner runner{s.study, data, s.out.runs(), "test 1", s.signals, kOneThread};
  const Trial trial{"XS", "baseline", Stage::kTune, 0.016, 1, 1};
  runner.run(trial, [](const std::string&) {});
  const std::string folder = run_folder(runner.runs, trial, 3840);
  const RunFolder busy(folder, RunFolder::Purpose::kResume);
  EXPECT_THROW(runner.run(trial, [](const std::string& problem) { FAIL() << problem; }), BusyRunError);
  EXPECT_TRUE(std::filesystem::exists(folder));
}

TEST(StudyRun, ADamagedRunIsSetAsideAndRepeated) {
  SmallStudy s;
  const Dataset data = Dataset::open(s.study.data, kOneThread);
  const TrialRunner runner{s.study, data, s.out.runs(), "test 1", s.signals, kOneThread};
  const Trial trial{"XS", "baseline", Stage::kTune, 0.016, 1, 1};
  const auto good = runner.run(trial, [](const std::string&) {});
  const std::string folder = run_folder(runner.runs, trial, 3840);
  write_file_atomic(folder + "/config.toml", "model.layers = \"many\"");
  std::string told;
  const auto again = runner.run(trial, [&](const std::string& problem) { told = problem; });
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->result(StudyMetric::kLoss), good->result(StudyMetric::kLoss));
  EXPECT_NE(told.find("damaged, set aside"), std::string::npos) << told;
  EXPECT_TRUE(std::filesystem::exists(folder + ".damaged-1"));
}

// A record that cannot be read must neither count nor keep its trial from being repeated.
TEST(StudyRun, ADamagedRecordIsSetAsideAndRepeated) {
  SmallStudy s;
  open_study_folder(s.out, s.study);
  s.work();
  const std::string path = Records::path(s.out.records(), {"XS", "baseline", Stage::kTune, 0.016, 1, 1});
  const auto losses = [&] { return parse_json(contents_of(path))["training"]; };
  const Json before = losses();
  write_file_atomic(path, "{\"format\": \"ddl-tr");
  EXPECT_EQ(s.work(), 0);
  EXPECT_EQ(losses(), before);
  EXPECT_TRUE(std::filesystem::exists(path + ".damaged-1"));
  EXPECT_NE(contents_of(s.out.problems()).find("no JSON object"), std::string::npos);
}

// The checkpoint that a longer budget would branch off is damaged: it is trained from step 0, to the same bits.
TEST(StudyRun, ADamagedTrunkCostsTimeOnly) {
  SmallStudy s;
  const Dataset data = Dataset::open(s.study.data, kOneThread);
  const TrialRunner runner{s.study, data, s.out.runs(), "test 1", s.signals, kOneThread};
  const Trial trial{"XS", "baseline", Stage::kConfirm, 0.016, 1, 101};
  const auto good = runner.run(trial, [](const std::string& problem) { FAIL() << problem; });
  std::filesystem::remove_all(run_folder(runner.runs, trial, 3840));
  for (const auto& entry :
       std::filesystem::directory_iterator(run_folder(runner.runs, trial, 1920) + "/checkpoints"))
    if (!entry.path().string().ends_with("10"))  // all but the last step
      write_file_atomic(entry.path().string() + "/optimizer.safetensors", "damaged");
  std::string told;
  const auto again = runner.run(trial, [&](const std::string& problem) { told += problem; });
  ASSERT_TRUE(good && again);
  EXPECT_EQ(again->endpoints[1].loss, good->endpoints[1].loss);
  EXPECT_NE(told.find("cannot branch"), std::string::npos) << told;
}

TEST(StudyRun, RefusesBeforeTheFirstRun) {
  SmallStudy s;
  const Dataset data = Dataset::open(s.study.data, kOneThread);
  Study impossible = s.study;
  impossible.sizes[0].settings = {"model.width=17", "model.heads=2"};
  EXPECT_THROW(StudyCosts(impossible, data, kOneThread), UserError);
  Study short_budget = s.study;
  short_budget.sizes[0].tokens = {100};
  EXPECT_THROW(StudyCosts(short_budget, data, kOneThread), UserError);
  Study no_answers = s.study;
  no_answers.metric = StudyMetric::kWrongAnswers;
  EXPECT_NO_THROW(StudyCosts(no_answers, data, kOneThread));  // this data knows its answers
  Study one_budget = s.study;
  one_budget.sizes[0].tokens = {3840};
  one_budget.questions[0].match = StudyQuestion::Match::kFlops;
  EXPECT_THROW(StudyCosts(one_budget, data, kOneThread), UserError);
  Study same_steps = s.study;
  same_steps.sizes[0].tokens = {3840, 3841};
  EXPECT_THROW(StudyCosts(same_steps, data, kOneThread), UserError);
  Study cosine = s.study;
  cosine.settings.push_back("train.schedule=cosine");
  EXPECT_THROW(StudyCosts(cosine, data, kOneThread), UserError);
  open_study_folder(s.out, s.study);
  Study changed = make_study(s.folder, s.study.text + "# a remark\n");
  EXPECT_THROW(open_study_folder(s.out, changed), UserError);
}

TEST(StudyRun, RecordsOfOtherDataAreRefused) {
  SmallStudy s;
  open_study_folder(s.out, s.study);
  Records::write(s.out.records(), make_trial_record(s.study, {"XS", "ddl-cc", Stage::kTune, 0.004, 1, 1}, 3));
  EXPECT_THROW(s.work(), UserError);
}

}  // namespace
}  // namespace ddl
