// Audits as sections of a report: the page shows the audit's own numbers, and a damaged audit is refused.
#include "audit/audit_document.h"

#include <gtest/gtest.h>

#include "audit/audit_testing.h"
#include "core/error.h"
#include "model/residual/registry.h"

namespace ddl {
namespace {

Json find_block(const Json& document, const std::string& section, const std::string& title) {
  for (const Json& each : document["sections"])
    if (each["id"] == section)
      for (const Json& block : each["blocks"])
        if (block.contains("title") && block["title"] == title) return block;
  return nullptr;
}

TEST(AuditDocument, ShowsTheNumbersOfTheAudit) {
  const Json ddl = tiny_audit("ddl-cc", 4, 16), additive = tiny_audit("baseline", 4, 16);
  const Json document = audits_document({ddl, additive}).json();
  const Json lens = find_block(document, "audits", "Loss of a prediction made in front of each sublayer");
  ASSERT_EQ(lens["series"].size(), 2u);
  EXPECT_EQ(lens["series"][0]["name"], "ddl-cc");
  EXPECT_EQ(lens["series"][0]["y"], ddl["lens"]["loss"]);
  EXPECT_EQ(lens["series"][1]["y"], additive["lens"]["loss"]);
  // What the erasures left of the writes; the additive rule erases nothing and shows what is kept.
  const Json kept = find_block(document, "audits", "How much of each write is left at the end");
  Json left = ddl["survival"]["left"];
  left.erase(left.begin());
  EXPECT_EQ(kept["series"][0]["y"], left);
  EXPECT_EQ(kept["series"][1]["y"], additive["readouts"]["kept"]);
  for (const auto& [section, audit] : {std::pair("audit-1", ddl), std::pair("audit-2", additive)}) {
    const Json changes =
        find_block(document, section, "Change of the loss when one thing is changed in one sublayer");
    EXPECT_EQ(changes["values"], audit["intervention_matrix"]["values"]);
    EXPECT_EQ(changes["columns"], audit["intervention_matrix"]["columns"]);
  }
  const Json classes = find_block(document, "audit-1", "Mean gate by class of token");
  const Json& first = ddl["gates"]["gate"]["classes"][0];
  EXPECT_EQ(classes["values"][0][0], first["mean"]["values"][0][0]);
  EXPECT_EQ(classes["columns"][0],
            first["class"].get<std::string>() + ": " + first["mean"]["columns"][0].get<std::string>());
}

TEST(AuditDocument, EveryRuleHasOne) {
  for (const std::string& rule : rule_names()) {
    const Json audit = tiny_audit(rule, 2, 8);
    const Json document = audits_document({parse_audit(to_line(audit), "a file")}).json();
    EXPECT_EQ(document["sections"].size(), 2u) << rule;
    EXPECT_EQ(document["title"], "Inside " + rule);
  }
}

TEST(AuditDocument, ModelsOfOneRuleAreToldApartByTheirFolders) {
  Json a = tiny_audit("ddl-cc", 2, 8), b = a, c = a;
  a["model"]["folder"] = "runs/one/", b["model"]["folder"] = "runs/two", c["model"]["folder"] = "other/two";
  const Json document = audits_document({a, b, c}).json();
  const Json lens = find_block(document, "audits", "Loss of a prediction made in front of each sublayer");
  EXPECT_EQ(lens["series"][0]["name"], "ddl-cc one");
  EXPECT_EQ(lens["series"][1]["name"], "ddl-cc two");
  EXPECT_EQ(lens["series"][2]["name"], "ddl-cc two (2)");
}

TEST(AuditDocument, ModelsOfOneRuleAreCalledByTheFoldersOfTheirAudits) {
  Json forged = tiny_audit("ddl-cc", 2, 8);
  forged["read_from"] = 7;
  const std::string text = to_line(forged);
  const Json document =
      audits_document({parse_audit(text, "audits/ddl-cc-101/audit.json"),
                       parse_audit(text, "audits/ddl-cc-102/audit.json"), parse_audit(text, "another.json")})
          .json();
  const Json lens = find_block(document, "audits", "Loss of a prediction made in front of each sublayer");
  EXPECT_EQ(lens["series"][0]["name"], "ddl-cc-101");
  EXPECT_EQ(lens["series"][1]["name"], "ddl-cc-102");
  EXPECT_EQ(lens["series"][2]["name"].get<std::string>().substr(0, 7), "ddl-cc ");
}

TEST(AuditDocument, SeveralModelsAreShownByTheirMeanWithABand) {
  Json low = tiny_audit("ddl-cc", 2, 8), high = low;
  for (Json& loss : high["lens"]["loss"]) loss = loss.get<double>() + 1;
  high["intervention_matrix"]["values"][0][0] = low["intervention_matrix"]["values"][0][0].get<double>() + 2;
  ReportDocument report("Two seeds", "");
  add_audits(report, {{"an arm", {low, high}}});
  const Json document = report.json();
  ASSERT_EQ(document["sections"].size(), 2u) << "one comparison, one group";
  const Json lens = find_block(document, "audits", "Loss of a prediction made in front of each sublayer");
  ASSERT_EQ(lens["series"].size(), 1u);
  const Json& series = lens["series"][0];
  EXPECT_EQ(series["name"], "an arm");
  EXPECT_EQ(series["lo"], low["lens"]["loss"]);
  EXPECT_EQ(series["hi"], high["lens"]["loss"]);
  EXPECT_NEAR(series["y"][0].get<double>(), low["lens"]["loss"][0].get<double>() + 0.5, 1e-12);
  const Json changes =
      find_block(document, "audit-1", "Change of the loss when one thing is changed in one sublayer");
  EXPECT_NEAR(changes["values"][0][0].get<double>(),
              low["intervention_matrix"]["values"][0][0].get<double>() + 1, 1e-12);
  const Json& row = document["sections"][0]["blocks"][0]["rows"][0];
  EXPECT_EQ(row[2], 2) << "models";
}

TEST(AuditDocument, RefusesWhatIsNoAudit) {
  EXPECT_FALSE(is_audit("[1]"));
  EXPECT_FALSE(is_audit("{"));
  EXPECT_TRUE(is_audit(R"({"format": "ddl-audit"})"));
  EXPECT_THROW(parse_audit("{", "x"), UserError);
  EXPECT_THROW(parse_audit("[]", "x"), UserError);
  EXPECT_THROW(parse_audit(R"({"format": "other", "version": 1})", "x"), UserError);
  EXPECT_THROW(parse_audit(R"({"format": "ddl-audit", "version": 2})", "x"), UserError);
  EXPECT_THROW(audits_document({Json::object()}), UserError);
}

// Replaces every value of an audit, one after the other, by values of another type: either it does not matter, or the
// audit is refused.
void damage_everywhere(Json& whole, Json& at, Index& refused, Index& tried) {
  for (Json& child : at) {
    const Json kept = child;
    for (const Json& wrong : {Json(nullptr), Json("x"), Json(-1), Json::array({1, "x"}), Json{{"rows", 3}}}) {
      child = wrong;
      ++tried;
      try {
        audits_document({whole});
      } catch (const UserError&) {
        ++refused;
      }
    }
    child = kept;
    if (child.is_object() || (child.is_array() && !child.empty() && !child[0].is_number()))
      damage_everywhere(whole, child, refused, tried);
  }
}

TEST(AuditDocument, DamagedPartsAreRefusedOrLeftOut) {
  Json audit = tiny_audit("ddl-cc", 2, 8);
  Index refused = 0, tried = 0;
  damage_everywhere(audit, audit, refused, tried);
  EXPECT_GT(tried, 500);
  EXPECT_GT(refused, 200);
}

}  // namespace
}  // namespace ddl
