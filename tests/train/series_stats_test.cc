// Statistics of what a rule says about tokens: every series of every rule, by its name.
#include "train/series_stats.h"

#include <gtest/gtest.h>

#include <set>

#include "model/oracle_model.h"
#include "test_folder.h"

namespace ddl::series_stats_test {
namespace {

std::unique_ptr<TrainableModel> after_a_batch(const std::string& rule, bool scrambled = true) {
  auto model = trainable(model_config({.residual = rule}), {2, 5});
  if (scrambled) scramble(*model);
  const auto x = tokens(10, 1), y = tokens(10, 2);
  model->loss_and_grad({x.data(), y.data()}, 1, Exec{});
  return model;
}

TEST(SeriesStatistics, EveryRuleReportsAllItsSeries) {
  Index rules_with_series = 0;
  for (const std::string& rule : rule_names()) {
    const auto model = after_a_batch(rule);
    const Json sublayers = series_statistics(*model, Exec{.threads = 2});
    if (model->series(0).empty()) {
      EXPECT_TRUE(sublayers.is_null()) << rule;
      continue;
    }
    ++rules_with_series;
    ASSERT_EQ(std::ssize(sublayers), model->config().sublayers()) << rule;
    for (Index s = 0; s < model->config().sublayers(); ++s) {
      const auto all = model->series(s);
      ASSERT_EQ(sublayers[s]["series"].size(), all.size()) << rule;
      for (const TokenSeries& series : all) {
        const Json& said = sublayers[s]["series"][series.name];
        std::vector<double> values;
        for (Index n = 0; n < 10; ++n)
          for (Index i = 0; i < series.per_token; ++i)
            values.push_back(double{series.values[n * series.stride + i]});
        double mean = 0, squares = 0;
        for (double v : values) mean += v / static_cast<double>(values.size());
        for (double v : values) squares += (v - mean) * (v - mean) / static_cast<double>(values.size());
        EXPECT_NEAR(said["mean"].get<double>(), mean, 1e-12 * (1 + std::abs(mean))) << rule << series.name;
        EXPECT_NEAR(said["deviation"].get<double>(), std::sqrt(squares), 1e-6 * (1 + std::abs(mean)))
            << rule << series.name;
        EXPECT_EQ(said.contains("each"), series.per_token > 1);
        EXPECT_EQ(said.contains("histogram"), series.low < series.high);
        EXPECT_TRUE(contains(series_table(sublayers), series.name + " ")) << rule;
      }
    }
  }
  EXPECT_GE(rules_with_series, 10);
}

// The names and ranges are the rule's.
TEST(SeriesStatistics, SeparateGatesAreSeparate) {
  const auto model = after_a_batch("ddl-ew-cc", false);
  for (const char* name : {"erase gate", "write gate"})
    for (const TokenSeries& series : model->series(2))
      if (series.name == name) {
        float* values = const_cast<float*>(series.values);
        for (Index n = 0; n < 10; ++n)
          values[n * series.stride] = name[0] == 'e' ? 0.25f : n < 5 ? 1.5f : 1.7f;
      }
  const Json sublayers = series_statistics(*model, Exec{});
  const Json &erase = sublayers[2]["series"]["erase gate"], &write = sublayers[2]["series"]["write gate"];
  EXPECT_EQ(erase["mean"], 0.25);
  EXPECT_EQ(erase["deviation"], 0);
  EXPECT_EQ(erase["range"], Json({0.0, 2.0}));
  EXPECT_EQ(erase["histogram"][2], 1.0);
  EXPECT_NEAR(write["mean"].get<double>(), 1.6, 1e-6);
  EXPECT_NEAR(write["deviation"].get<double>(), 0.1, 1e-6);
  EXPECT_EQ(write["histogram"][15], 0.5);
  const std::string table = series_table(sublayers);
  EXPECT_TRUE(contains(table, "erase gate")) << table;
  EXPECT_TRUE(contains(table, "  2 attention        0.25       0.00   ===\n")) << table;
}

// A stream that takes over is seen.
TEST(SeriesStatistics, NumbersOfATokenHaveMeansOfTheirOwn) {
  const auto model = after_a_batch("hc", false);
  const Json sublayers = series_statistics(*model, Exec{});
  EXPECT_EQ(sublayers[1]["series"]["read weight"]["each"], Json({0.0, 1.0, 0.0}));
  EXPECT_EQ(sublayers[1]["series"]["mixing diagonal"]["mean"], 1.0);
  EXPECT_TRUE(contains(series_table(sublayers), "0.00 1.00 0.00"));
}

}  // namespace
}  // namespace ddl::series_stats_test
