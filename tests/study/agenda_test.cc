// The search for rates and the looks at the seeds, on losses from a formula.
#include "study/agenda.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "core/rng.h"
#include "study/answers.h"
#include "study/tuning.h"
#include "study_testing.h"

namespace ddl {
namespace {

constexpr double kDiverged = std::numeric_limits<double>::infinity();

double square(double x) { return x * x; }

// A bowl in log2(rate) and log2(scale), lowest at `best_rate` and `best_scale`.
LossOf bowl(double best_rate, double best_scale = 1) {
  return [=](const Trial& trial) {
    return 4 + 0.1 * square(std::log2(trial.rate / best_rate)) +
           0.05 * square(std::log2(trial.scale / best_scale)) + 0.001 * static_cast<double>(trial.seed % 3);
  };
}

Tuning tuned(const Study& study, const Records& records, const std::string& arm = "ddl-cc") {
  return tune(study, study.sizes.front(), study.arm(arm), records);
}

TEST(Tuning, FindsTheRateInsideTheGrid) {
  const TestFolder folder;
  const Study study = make_study(folder, study_text());
  const Tuning found = tuned(study, simulate(study, bowl(0.02)));
  EXPECT_TRUE(found.settled);
  EXPECT_NEAR(found.rate, 0.02, 0.0002);  // the parabola is exact; the rate has three digits
  EXPECT_EQ(found.cells.size(), 5u);
}

TEST(Tuning, TheGridGrowsUntilTheBestLiesInside) {
  const TestFolder folder;
  const Study study = make_study(folder, study_text());
  const Tuning high = tuned(study, simulate(study, bowl(0.3)));
  EXPECT_TRUE(high.settled);
  EXPECT_FALSE(high.at_limit);
  EXPECT_NEAR(high.rate, 0.3, 0.003);
  EXPECT_EQ(high.cells.size(), 8u);  // 0.128, 0.256 and 0.512 on top
  const Tuning low = tuned(study, simulate(study, bowl(0.001)));
  EXPECT_NEAR(low.rate, 0.001, 0.00001);
}

TEST(Tuning, TheGridDoesNotGrowForEver) {
  const TestFolder folder;
  const Study study = make_study(folder, study_text());
  const Tuning found = tuned(study, simulate(study, bowl(1e6)));
  EXPECT_TRUE(found.settled);
  EXPECT_TRUE(found.at_limit);
  EXPECT_EQ(found.cells.size(), 10u);
}

TEST(Tuning, RatesThatDivergeAreNotTheBest) {
  const TestFolder folder;
  const Study study = make_study(folder, study_text());
  const auto some_diverge = [](const Trial& trial) {
    return trial.rate > 0.01 ? kDiverged : bowl(0.1)(trial);
  };
  const Tuning found = tuned(study, simulate(study, some_diverge));
  EXPECT_TRUE(found.settled);
  EXPECT_EQ(found.rate, 0.008);  // its neighbour diverged: no parabola
  const auto all_diverge = [](const Trial& trial) {
    return trial.rate > 0.003 ? kDiverged : bowl(0.001)(trial);
  };
  EXPECT_NEAR(tuned(study, simulate(study, all_diverge)).rate, 0.001, 0.00001);
}

TEST(Tuning, TheScaleIsTunedWithTheRate) {
  const TestFolder folder;
  const Study study = make_study(folder, study_text("scales = [0.25, 0.5, 1, 2]\n"));
  // The best rate depends on the scale: a search that never returned to the rates would miss it.
  const auto tilted = [](const Trial& trial) {
    const double y = std::log2(trial.scale), x = std::log2(trial.rate / 0.016) + 0.75 * y;
    return 4 + 0.1 * square(x) + 0.05 * square(y + 2);
  };
  const Tuning found = tuned(study, simulate(study, tilted));
  EXPECT_TRUE(found.settled);
  EXPECT_EQ(found.scale, 0.25);
  EXPECT_NEAR(found.rate, 0.016 * std::exp2(1.5), 0.0005);
}

TEST(Tuning, LaterSizesKeepTheScaleAndWaitForIt) {
  const TestFolder folder;
  const std::string second = R"([[size]]
name = "S"
settings = ["model.layers=1", "model.width=32", "model.heads=1"]
tokens = [1920, 3840]
arms = ["ddl-cc", "baseline"]
)";
  const Study study = make_study(folder, study_text("scales = [0.5, 1]\n", second));
  EXPECT_TRUE(tune(study, study.size("S"), study.arm("ddl-cc"), Records()).missing.empty());
  const Records records = simulate(study, bowl(0.016, 0.5));
  EXPECT_EQ(tune(study, study.size("S"), study.arm("ddl-cc"), records).scale, 0.5);
  for (const auto& [name, record] : records.all())
    EXPECT_TRUE(record.trial.size == "XS" || record.trial.scale == 0.5) << name;
}

TEST(Tuning, AFixedRateIsNotTuned) {
  const TestFolder folder;
  const std::string arm =
      "[[arm]]\nname = \"baseline\"\nsettings = [\"model.residual=baseline\"]\nrate = 0.001\n";
  const Study study = make_study(folder, study_text("", arm));
  const Records records = simulate(study, bowl(0.016));
  EXPECT_EQ(count(records, "baseline", Stage::kTune), 0);
  EXPECT_TRUE(tuned(study, records, "baseline").fixed);
  for (const auto& [name, record] : records.all())
    EXPECT_TRUE(record.trial.arm == "ddl-cc" || record.trial.rate == 0.001) << name;
}

// What an arm adds to the bowl, with noise that both arms of a seed share and noise of its own.
LossOf confirmed(double effect, double noise) {
  return [=](const Trial& trial) {
    const double own = Random(7, trial.arm).normal(static_cast<std::uint64_t>(trial.seed));
    const double shared = Random(7, "shared").normal(static_cast<std::uint64_t>(trial.seed));
    return bowl(0.016)(trial) + (trial.arm == "ddl-cc" ? effect : 0) + 0.5 * shared + noise * own;
  };
}

TEST(Agenda, AClearDifferenceStopsAtTheFirstLook) {
  const TestFolder folder;
  const Study study = make_study(folder, study_text());
  const Records records = simulate(study, confirmed(-0.5, 0.01));
  EXPECT_EQ(count(records, "ddl-cc", Stage::kConfirm), 4);
  EXPECT_EQ(count(records, "baseline", Stage::kConfirm), 4);
  const Answer answer = answer_questions(study, records).front();
  EXPECT_EQ(answer.decision.verdict, Verdict::kBetter);
  EXPECT_NEAR(answer.decision.mean, -0.5, 0.03);
  EXPECT_EQ(make_agenda(study, records).most_left, 0);
}

TEST(Agenda, NoDifferenceEndsWithEquivalence) {
  const TestFolder folder;
  const Study study = make_study(folder, study_text());
  const Records records = simulate(study, confirmed(0, 0.001));
  EXPECT_EQ(answer_questions(study, records).front().decision.verdict, Verdict::kEquivalent);
  EXPECT_EQ(count(records, "ddl-cc", Stage::kConfirm), 8) << "the first look asks for an interval of 99.9%";
}

TEST(Agenda, AnOpenQuestionTakesAllSeedsAndNoMore) {
  const TestFolder folder;
  const Study study = make_study(folder, study_text());
  const Records records = simulate(study, confirmed(0, 0.2));
  EXPECT_EQ(count(records, "ddl-cc", Stage::kConfirm), 12);
  EXPECT_EQ(answer_questions(study, records).front().decision.verdict, Verdict::kUndecided);
  EXPECT_EQ(answer_questions(study, records).front().decision.next_pairs, 0);
}

TEST(Agenda, ADivergedSeedLeavesTheQuestionUndecidedAndSaysSo) {
  const TestFolder folder;
  const Study study = make_study(folder, study_text());
  const Records records = simulate(study, [](const Trial& trial) {
    return trial.arm == "ddl-cc" && trial.seed == 102 ? kDiverged : confirmed(-0.5, 0.01)(trial);
  });
  const Answer answer = answer_questions(study, records).front();
  EXPECT_EQ(answer.verdict, Verdict::kUndecided);
  EXPECT_NE(answer.line(StudyMetric::kLoss).find("in 1 of 12 pairs a run diverged"), std::string::npos)
      << answer.line(StudyMetric::kLoss);
}

// The level is 1 - p of the look that decided: here the first of the usual three, and the last.
TEST(Answers, AnIntervalComesWithItsLevel) {
  const TestFolder folder;
  const Study study = make_study(folder, study_text());
  const auto all = answer_questions(study, simulate(study, confirmed(-0.5, 0.01)));
  EXPECT_NE(all.front().line(StudyMetric::kLoss).find("] (99.95%) after 4 pairs: better"), std::string::npos)
      << all.front().line(StudyMetric::kLoss);
  EXPECT_DOUBLE_EQ(answers_json(all)[0]["level"].get<double>(), 0.9995);
  const Answer open = answer_questions(study, simulate(study, confirmed(0, 0.2))).front();
  EXPECT_NE(open.line(StudyMetric::kLoss).find("] (95.5%) after 12 pairs: undecided"), std::string::npos)
      << open.line(StudyMetric::kLoss);
  EXPECT_TRUE(answers_json(answer_questions(study, Records()))[0]["level"].is_null()) << "no interval yet";
}

TEST(Agenda, SeedsOfTuningAreNotUsedAgain) {
  const TestFolder folder;
  const Study study = make_study(folder, study_text());
  std::set<Index> tuning, confirming;
  const Records records = simulate(study, confirmed(0, 0.2));
  for (const auto& [name, record] : records.all())
    (record.trial.stage == Stage::kTune ? tuning : confirming).insert(record.trial.seed);
  EXPECT_EQ(tuning, (std::set<Index>{1, 2}));
  EXPECT_EQ(*confirming.begin(), 101);
  EXPECT_EQ(confirming.size(), 12u);
}

TEST(Agenda, CountsWhatIsLeft) {
  const TestFolder folder;
  const Study study = make_study(folder, study_text());
  const Agenda first = make_agenda(study, Records());
  EXPECT_EQ(first.trials.size(), 20u);  // 2 arms, 5 rates, 2 seeds
  EXPECT_EQ(first.least_left, 20 + 8);
  EXPECT_EQ(first.most_left, 20 + 24);
}

TEST(Answers, EqualFlopsComparesAtTheComputeBothHaveReached) {
  const TestFolder folder;
  std::string text = study_text();
  text += "match = \"flops\"\n";
  const Study study = make_study(folder, text);
  Records records = simulate(study, bowl(0.016));
  // The delta rule takes twice the compute; its loss falls by 0.2 from one budget to the next, twice as large.
  for (Index seed = 101; seed < 105; ++seed) {
    const Tuning a = tuned(study, records), b = tuned(study, records, "baseline");
    TrialRecord delta = make_trial_record(study, {"XS", "ddl-cc", Stage::kConfirm, a.rate, a.scale, seed}, 3);
    delta.endpoints[0].flops *= 2, delta.endpoints[1].flops *= 2;
    delta.endpoints[0].loss = 3.2, delta.endpoints[1].loss = 3.0;
    TrialRecord base =
        make_trial_record(study, {"XS", "baseline", Stage::kConfirm, b.rate, b.scale, seed}, 3.1);
    records.add(delta), records.add(base);
  }
  // The baseline's end, 384,000 FLOPs, is the delta rule's first budget.
  const Answer answer = answer_questions(study, records).front();
  EXPECT_NEAR(answer.differences.at(0), 3.2 - 3.1, 1e-12);
}

// Losses that fall like a parabola in the logarithm of the compute are met exactly; a line would be too high.
TEST(Answers, BetweenBudgetsTheCurveIsBent) {
  const TestFolder folder;
  std::string text = study_text() + "match = \"flops\"\n";
  text.replace(text.find("[1920, 3840]"), 12, "[960, 1920, 3840]");
  const Study study = make_study(folder, text);
  Records records = simulate(study, bowl(0.016));
  const Tuning a = tuned(study, records), b = tuned(study, records, "baseline");
  const auto loss = [](double flops) { return 3 + 0.1 * square(std::log2(flops / 500000)); };
  for (Index seed = 101; seed < 105; ++seed) {
    TrialRecord delta = make_trial_record(study, {"XS", "ddl-cc", Stage::kConfirm, a.rate, a.scale, seed}, 3);
    for (Endpoint& end : delta.endpoints) end.flops *= 1.3, end.loss = loss(end.flops);
    records.add(delta);
    records.add(make_trial_record(study, {"XS", "baseline", Stage::kConfirm, b.rate, b.scale, seed}, 3.1));
  }
  EXPECT_NEAR(answer_questions(study, records).front().differences.at(0), loss(384000) - 3.1, 1e-12);
}

TEST(Answers, HolmCorrectsOverThePrimaryQuestionsOfASize) {
  const TestFolder folder;
  const std::string more = R"([[question]]
ask = "Is it worse?"
arm = "baseline"
against = "ddl-cc"
primary = true
[[question]]
ask = "In passing?"
arm = "baseline"
against = "ddl-cc"
)";
  const Study study = make_study(folder, study_text("", more));
  const std::vector<Answer> answers = answer_questions(study, simulate(study, confirmed(-0.5, 0.01)));
  ASSERT_EQ(answers.size(), 3u);
  EXPECT_GE(answers[0].overall_p, answers[0].decision.p);
  EXPECT_DOUBLE_EQ(answers[0].holm_p, std::min(1.0, 2 * answers[0].overall_p));
  EXPECT_EQ(answers[1].decision.verdict, Verdict::kWorse);
  EXPECT_EQ(answers[2].holm_p, 1);  // not primary: not corrected
}

}  // namespace
}  // namespace ddl
