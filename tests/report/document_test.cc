#include "report/document.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/error.h"
#include "report/every_block.h"
#include "test_folder.h"

namespace ddl {
namespace {

TEST(ReportDocument, SaysWhatItIsAndLeavesOutEmptySections) {
  ReportDocument document("title", "subtitle");
  document.section("empty", "Empty");
  document.section("full", "Full");
  document.add(TextBlock{"text"});
  EXPECT_EQ(to_line(document.json()),
            R"({"format":"ddl-report","version":1,"title":"title","subtitle":"subtitle","sections":[)"
            R"({"id":"full","title":"Full","blocks":[{"kind":"text","text":"text"}]}]})");
}

TEST(ReportDocument, NumbersSurviveTheirText) {
  ReportDocument document("", "");
  document.section("s", "s");
  const std::vector<double> values = {0.1,
                                      1.0 / 3,
                                      1e-308,
                                      1.7976931348623157e308,
                                      -0.0,
                                      123456789012345680.0,
                                      std::numeric_limits<double>::denorm_min()};
  document.add(LinesBlock{
      .title = "",
      .note = "",
      .axes = {{"x", "x"}},
      .y_label = "",
      .series = {{.name = "", .group = "", .x = {{"x", values}}, .y = values, .lo = {}, .hi = {}}}});
  const Json read = parse_json(to_line(document.json()));
  const Json series = read["sections"][0]["blocks"][0]["series"][0];
  EXPECT_EQ(series["y"].get<std::vector<double>>(), values);
  EXPECT_EQ(series["x"]["x"].get<std::vector<double>>(), values);
}

TEST(ReportDocument, WhatIsNotFiniteIsNull) {
  ReportDocument document("", "");
  document.section("s", "s");
  document.add(HeatBlock{.title = "",
                         .note = "",
                         .unit = "",
                         .rows = {"r"},
                         .columns = {"a", "b", "c"},
                         .values = {{NAN, INFINITY, -INFINITY}}});
  document.add(
      ForestBlock{.title = "", .note = "", .unit = "", .rows = {{"r", 1, NAN, INFINITY, {NAN}, {}}}});
  document.add(TableBlock{"", {{"c"}}, {{Json(NAN)}}});
  const Json blocks = document.json()["sections"][0]["blocks"];
  EXPECT_EQ(to_line(blocks[0]["values"]), "[[null,null,null]]");
  for (const Json& value : blocks[0]["values"][0])
    EXPECT_TRUE(value.is_null()) << "in memory, not only as text";
  EXPECT_EQ(to_line(blocks[1]["rows"][0]), R"({"name":"r","mean":1.0,"lo":null,"hi":null,"points":[null]})");
  EXPECT_EQ(to_line(blocks[2]["rows"]), "[[null]]");
}

TEST(ReportDocument, EveryKindOfBlockIsThere) {
  std::string kinds;
  const Json document = every_block().json();
  for (const Json& section : document["sections"])
    for (const Json& block : section["blocks"]) kinds += block["kind"].get<std::string>() + " ";
  EXPECT_EQ(kinds, "text code list list answers table lines forest heat heat bars ");
}

TEST(ReportDocument, ReadsWhatItWroteAndNothingElse) {
  const Json document = every_block().json();
  EXPECT_EQ(parse_report_document(to_text(document), "file"), document);
  const auto refusal = [](const std::string& text) {
    return message_of<UserError>([&] { parse_report_document(text, "some.json"); });
  };
  const std::string head = R"({"format":"ddl-report","version":1,"title":"t","sections":)";
  EXPECT_TRUE(contains(
      refusal("text"),
      "some.json: expected a document that `ddl report --json` wrote, found a file that is not JSON"));
  EXPECT_TRUE(contains(refusal(R"({"format":"other"})"), "\"format\": \"ddl-report\""));
  EXPECT_TRUE(contains(refusal(R"({"format":"ddl-report","version":2})"), "expected version 1, found 2"));
  EXPECT_TRUE(contains(refusal(head + "3}"), "a list of sections"));
  EXPECT_TRUE(contains(refusal(head + R"([{"id":"a","title":"t"}]})"), "a list of blocks"));
  EXPECT_TRUE(contains(refusal(head + R"([{"id":"a","title":"t","blocks":[4]}]})"),
                       "section 'a': every block needs a kind"));
}

}  // namespace
}  // namespace ddl
