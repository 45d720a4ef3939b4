#include "audit/audit_average.h"

#include <gtest/gtest.h>

#include <cmath>

#include "audit/audit_testing.h"

namespace ddl {
namespace {

TEST(AuditAverage, MeansOfNumbersAndWhatModelsShare) {
  const Json a = {{"loss", 4.0}, {"tokens", 64},     {"lens", {1.0, nullptr, 3.0}}, {"ranks", {1, 2}},
                  {"name", "x"}, {"only here", 1.0}, {"part", {{"text", "one"}}}};
  const Json b = {{"loss", 4.5},  {"tokens", 64}, {"lens", {2.0, 5.0, 4.0}},
                  {"ranks", {1}}, {"name", "x"},  {"part", {{"text", "two"}}}};
  const Json average = average_audits({a, b});
  EXPECT_EQ(average["loss"], 4.25);
  EXPECT_TRUE(average["tokens"].is_number_integer()) << "counts stay whole";
  EXPECT_EQ(average["tokens"], 64);
  EXPECT_EQ(average["lens"], Json({1.5, nullptr, 3.5})) << "one model has no number there";
  EXPECT_EQ(average["ranks"], nullptr) << "lists of two lengths";
  EXPECT_EQ(average["name"], "x");
  EXPECT_FALSE(average.contains("only here"));
  EXPECT_EQ(average["part"]["text"], nullptr);
  EXPECT_EQ(average["models"], 2);
}

TEST(AuditAverage, StandardErrorsAreOverModels) {
  const auto audit = [](double change) {
    return Json{{"intervention_matrix", {{"values", {{change, 1.0}}}, {"se", {{0.5, 0.5}}}}}};
  };
  const Json average = average_audits({audit(1), audit(2), audit(6)});
  const Json& matrix = average["intervention_matrix"];
  EXPECT_DOUBLE_EQ(matrix["values"][0][0].get<double>(), 3);
  EXPECT_NEAR(matrix["se"][0][0].get<double>(), std::sqrt(7.0 / 3), 1e-12);  // variance 7 of three models
  EXPECT_EQ(matrix["se"][0][1].get<double>(), 0);
}

TEST(AuditAverage, OneAuditIsItsOwnAverage) {
  const Json audit = tiny_audit("ddl-cc", 2, 8);
  EXPECT_EQ(average_audits({audit}), audit);
  // Twice the same is the same, too, but for the count and the errors.
  Json twice = average_audits({audit, audit});
  twice.erase("models");
  twice["intervention_matrix"]["se"] = audit["intervention_matrix"]["se"];
  EXPECT_EQ(twice, audit);
}

TEST(AuditAverage, DamagedPartsAreLeftToTheReader) {
  const Json damaged = {{"intervention_matrix", {{"values", "many"}}}, {"loss", "low"}};
  EXPECT_EQ(average_audits({damaged, damaged})["loss"], "low");
}

}  // namespace
}  // namespace ddl
