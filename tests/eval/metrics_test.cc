#include "eval/metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "eval/eval_testing.h"

namespace ddl {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity(),
                 kNan = std::numeric_limits<double>::quiet_NaN();

TEST(Metrics, TheFirstMaximumWins) {
  EXPECT_EQ(first_maximum(std::vector{1.0, 3.0, 3.0}), 1);
  EXPECT_EQ(first_maximum(std::vector{-kInfinity, -kInfinity}), 0);
  EXPECT_EQ(first_maximum(std::vector{1.0, kNan, 5.0}), 1);
  // Equal as floats, different as doubles.
  EXPECT_EQ(first_maximum(std::vector{-10.0, -10.0 + 1e-9}), 1);
}

// The specification's vector: normalised by characters, not by bytes.
TEST(Metrics, NormalisedByCodePoints) {
  const TaskDocument d{{"Question: x\nAnswer:"}, {"it’s", "its ok"}, 0};
  const Question q = make_question(builtin("piqa"), d, "");
  const std::vector<Score> scores = {{-6.0, false}, {-6.1, false}};
  EXPECT_EQ(question_value(Metric::kAccuracy, TaskKind::kChoices, q, scores), 1);
  EXPECT_EQ(question_value(Metric::kNormalisedAccuracy, TaskKind::kChoices, q, scores), 0);
}

TEST(Metrics, ATieWithADistractorIsWrongInSciQ) {
  const TaskDocument d{{"q"}, {"a", "b", "c", "d"}, 3};
  const Question q = make_question(builtin("sciq"), d, "");
  const std::vector<Score> tie = {{-1, false}, {-2, false}, {-2, false}, {-1, false}};
  EXPECT_EQ(question_value(Metric::kAccuracy, TaskKind::kChoices, q, tie), 0);
}

TEST(Metrics, AChoiceWithoutCharactersNeverWins) {
  const Question q{{"q"}, {" ", " b"}, {0, 1}, 1};
  const std::vector<Score> scores = {{-0.1, false}, {-9, false}};
  EXPECT_EQ(question_value(Metric::kNormalisedAccuracy, TaskKind::kChoices, q, scores), 1);
}

TEST(Metrics, WinoGrandeComparesContexts) {
  const Question q{{"a", "b"}, {" rest"}, {4}, 1};
  EXPECT_EQ(
      question_value(Metric::kAccuracy, TaskKind::kContexts, q, std::vector<Score>{{-3, false}, {-2, false}}),
      1);
  EXPECT_EQ(
      question_value(Metric::kAccuracy, TaskKind::kContexts, q, std::vector<Score>{{-2, true}, {-2, true}}),
      0);
}

TEST(Metrics, LambadaIsGreedyAndPerWord) {
  const Question q{{"a"}, {" b"}, {2}, 0};
  const std::vector<Score> score = {{-2.5, true}};
  EXPECT_EQ(question_value(Metric::kAccuracy, TaskKind::kLikelihood, q, score), 1);
  EXPECT_EQ(question_value(Metric::kPerplexity, TaskKind::kLikelihood, q, score), -2.5);
  EXPECT_EQ(question_value(Metric::kAccuracy, TaskKind::kLikelihood, q, std::vector<Score>{{-2.5, false}}),
            0);
}

TEST(Metrics, MeanAndItsError) {
  std::vector<double> values(100);
  for (std::size_t i = 0; i < 30; ++i) values[3 * i] = 1;
  EXPECT_DOUBLE_EQ(aggregate(Metric::kAccuracy, values), 0.3);
  EXPECT_NEAR(*standard_error(Metric::kAccuracy, values, {}), 0.0460566186, 1e-10);
  EXPECT_FALSE(standard_error(Metric::kAccuracy, std::vector{1.0}, {}));
}

// Made with CPython: 100 times random.Random(i), 1000 times choices(xs, k=5) each. The sums differ in their
// last digits only, so the error does too.
TEST(Metrics, PerplexityAndItsBootstrapError) {
  const std::vector<double> log_likelihoods = {-1.5, -0.25, -3.0, -2.125, -0.75};
  EXPECT_DOUBLE_EQ(aggregate(Metric::kPerplexity, log_likelihoods), 4.595143569306688);
  const double one = *standard_error(Metric::kPerplexity, log_likelihoods, {.threads = 1});
  EXPECT_NEAR(one, 2.3382977568434233, 1e-10);
  EXPECT_EQ(*standard_error(Metric::kPerplexity, log_likelihoods, {.threads = 2}), one);
}

}  // namespace
}  // namespace ddl
