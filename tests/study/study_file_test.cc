#include "study/study_file.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "core/error.h"
#include "study_testing.h"

namespace ddl {
namespace {

std::string refusal(const std::string& text) {
  const TestFolder folder;
  try {
    make_study(folder, text);
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}

std::string with(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  return at == std::string::npos ? "no '" + from + "' in the text" : text.replace(at, from.size(), to);
}

TEST(StudyFile, ReadsEverything) {
  const TestFolder folder;
  const Study study = make_study(folder, study_text("scales = [0.5, 1, 2]\n", R"([[arm]]
name = "slow"
settings = ["model.residual=baseline"]
rate = 0.001
[[look]]
pairs = 2
p = 0.01
)"));
  EXPECT_EQ(study.title, "A test");
  EXPECT_EQ(study.metric, StudyMetric::kLoss);
  EXPECT_EQ(study.hash.size(), 64u);
  EXPECT_EQ(study.scales, (std::vector<double>{0.5, 1, 2}));
  EXPECT_EQ(study.tuning_seeds, (std::vector<Index>{1, 2}));
  ASSERT_EQ(study.looks.size(), 1u);
  EXPECT_EQ(study.looks[0].pairs, 2);
  EXPECT_EQ(study.arm("slow").rate, 0.001);
  EXPECT_EQ(study.arm("ddl-cc").settings, (std::vector<std::string>{"model.residual=ddl-cc"}));
  EXPECT_EQ(study.sizes[0].tokens, (std::vector<Index>{1920, 3840}));
  EXPECT_EQ(study.sizes[0].rates.size(), 5u);  // of the top level
  EXPECT_TRUE(study.questions[0].primary);
}

TEST(StudyFile, RefusesWhatCannotBeAnswered) {
  const std::string good = study_text();
  const auto expect = [&](const std::string& text, const std::string& part) {
    EXPECT_NE(refusal(text).find(part), std::string::npos) << refusal(text);
  };
  EXPECT_EQ(refusal(good), "accepted");
  expect(with(good, "[0.004, 0.008, 0.016, 0.032, 0.064]", "[0.004]"), "at least 3");
  expect(with(good, "0.016, 0.032", "0.02, 0.032"), "rise by one factor");
  expect(with(good, "rates = [0.004, 0.008, 0.016, 0.032, 0.064]\n", ""), "at least 3");
  expect(with(good, "rates = [", "rates = [-1, "), "numbers above 0");
  expect(with(good, "margin", "marjin"), "marjin is not a key of a study");
  expect(with(good, "primary = true", "primary = 1"), "true or false");
  expect(with(good, "[1920, 3840]", "[3840, 1920]"), "rising budgets");
  expect(with(good, "[1920, 3840]", "[]"), "rising budgets");
  expect(with(good, "arms = [\"ddl-cc\", \"baseline\"]", "arms = [\"ddl-cc\", \"base\"]"),
         "neither an [[arm]] nor");
  expect(with(good, "arms = [\"ddl-cc\", \"baseline\"]", "arms = [\"ddl-cc\"]"),
         "no arm is called 'baseline'");
  expect(good + "[[size]]\nname = \"S\"\ntokens = [1920]\narms = [\"wo-cc\"]\n" +
             "[[question]]\nask = \"Across sizes?\"\narm = \"wo-cc\"\nagainst = \"baseline\"\n",
         "no size has both");
  expect(with(good, "against = \"baseline\"", "against = \"basline\""),
         "no arm is called 'basline'; did you mean 'baseline'?");
  expect(with(good, "against = \"baseline\"", "against = \"foo\""),
         "no arm is called 'foo'; the arms are ddl-cc, baseline");
  expect(with(good, "[\"ddl-cc\", \"baseline\"]", "[\"ddl-cc\", \"basline\"]"), "; did you mean 'baseline'?");
  EXPECT_EQ(refusal(with(good, "[\"ddl-cc\", \"baseline\"]", "[\"ddl-cc\", \"foo\"]")).find("mean"),
            std::string::npos);
  expect(with(good, "name = \"XS\"", "name = \"../XS\""), "letters, digits");
  expect(good.substr(0, good.find("[[question]]")), "nothing to answer");
  expect(good.substr(0, good.find("[[size]]")), "no [[size]]");
  expect(study_text("tuning_seeds = [101]\n"), "tunes and confirms");
  expect(study_text("tuning_seeds = [1, 1]\n"), "each once");
  expect(study_text("first_seed = 9223372036854775807\n"), "first_seed");
  expect(with(good, "margin = 0.01", "margin = inf"), "margin");
  expect(with(good, "\"train.batch=4\"", "\"train.lr=1\""), "the study's to choose");
  expect(study_text("scales = [0.5, 2]\n"), "has 1 in it");
  expect(study_text("metric = \"speed\"\n"), "wrong_answers");
  expect(study_text("", "[[look]]\npairs = 4\np = 0.5\n"),
         "'look[0].p' is 0.5, expected a number above 0 and below 0.5");
  expect("title = ", "study.toml:1");
}

TEST(StudyFile, NeedsNoGridWhereEveryArmHasARate) {
  const TestFolder folder;
  std::string fixed;
  for (const char* arm : {"ddl-cc", "baseline"})
    fixed += fmt::format("[[arm]]\nname = \"{0}\"\nsettings = [\"model.residual={0}\"]\nrate = 0.01\n", arm);
  const std::string text = with(study_text("", fixed), "rates = [0.004, 0.008, 0.016, 0.032, 0.064]\n", "");
  const Study study = make_study(folder, text);
  EXPECT_TRUE(study.sizes[0].rates.empty());
  const std::vector<Trial> trials = make_agenda(study, Records()).trials;
  ASSERT_FALSE(trials.empty());
  for (const Trial& trial : trials) EXPECT_EQ(trial.stage, Stage::kConfirm);
}

TEST(StudyFile, EveryStudyOfTheProjectIsValid) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(DDL_CONFIGS "/studies")) {
    EXPECT_FALSE(read_study(entry.path().string()).questions.empty()) << entry.path();
    ++files;
  }
  EXPECT_GE(files, 3);
}

TEST(StudyFile, AChangedFileIsAnotherStudy) {
  const TestFolder folder;
  const Study study = make_study(folder, study_text());
  check_same_study(study, study.text, "out");
  try {
    check_same_study(study, with(study.text, "margin = 0.01", "margin = 0.02"), "out");
    FAIL();
  } catch (const UserError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("\n  - margin = 0.02\n  + margin = 0.01"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace ddl
