// A document with every kind of block, for tests of the page. Names are as hostile as names can be: whoever makes a
// page of runs does not choose what they are called.
#pragma once

#include <cmath>
#include <string>

#include "report/document.h"

namespace ddl {

inline const std::string kHostile =
    "</script><img src=\"http://ddl-report-test.invalid/x\" onerror=\"document.title='taken "
    "over'\"><!--<script>\u2028'\"&{{script}}";

inline ReportDocument every_block() {
  ReportDocument document("Every block " + kHostile, "subtitle " + kHostile);
  document.section("words", "Words " + kHostile);
  document.add(TextBlock{"text " + kHostile});
  document.add(CodeBlock{"code " + kHostile});
  document.add(ListBlock{{"item " + kHostile, "another"}});
  document.add(ListBlock{{"warning " + kHostile}, true});
  document.add(
      AnswersBlock{{{"question " + kHostile, "answer " + kHostile, Verdict::kBetter, "detail " + kHostile},
                    {"q", "a", Verdict::kUndecided, ""}}});
  document.add(TableBlock{"caption " + kHostile,
                          {{"name " + kHostile}, {"value", TableBlock::Align::kRight, 3}},
                          {{"cell " + kHostile, 0.1}, {"none", nullptr}, {"not finite", NAN}}});
  document.section("charts", "Charts");
  LinesBlock lines{.title = "lines " + kHostile,
                   .note = "note " + kHostile,
                   .axes = {{"tokens", "tokens " + kHostile}, {"flops", "FLOPs", AxisScale::kLog}},
                   .y_label = "loss",
                   .y_scale = AxisScale::kLinear,
                   .series = {}};
  LinesBlock::Series many{.name = "many " + kHostile, .group = "", .x = {}, .y = {}, .lo = {}, .hi = {}};
  for (int i = 0; i < 60; ++i) {
    const double tokens = 16384.0 * (i + 1);
    many.x["tokens"].push_back(tokens);
    many.x["flops"].push_back(6.2e6 * tokens);
    many.y.push_back(i == 20 || i == 22 ? NAN : 4 + 3 / (1.0 + i) + 0.01 * (i % 7));
    many.lo.push_back(many.y.back() - 0.1);
    many.hi.push_back(many.y.back() + 0.2);
  }
  lines.series.push_back(many);
  lines.series.push_back({.name = "few",
                          .group = "pair",
                          .x = {{"tokens", {1e4, 5e5, 9e5}}, {"flops", {1e11, 2e12, 5e12}}},
                          .y = {6.5, 4.75, 1.0 / 3},
                          .lo = {},
                          .hi = {},
                          .style = LinesBlock::Style::kDashed});
  lines.series.push_back({.name = "points",
                          .group = "pair",
                          .x = {{"tokens", {2e4, 4e5}}, {"flops", {1e11, 3e12}}},
                          .y = {7.25, -1.5},
                          .lo = {},
                          .hi = {},
                          .style = LinesBlock::Style::kPoints});
  document.add(lines);
  document.add(ForestBlock{
      .title = "forest " + kHostile,
      .note = "",
      .unit = "nats " + kHostile,
      .margin = 0.01,
      .rows = {{"first " + kHostile, -0.031, -0.045, -0.017, {-0.02, -0.05, -0.012}, Verdict::kBetter},
               {"second", 0.012, NAN, NAN, {0.01, 0.014}, {}}}});
  document.add(HeatBlock{.title = "centred heat " + kHostile,
                         .note = "",
                         .unit = "nats " + kHostile,
                         .rows = {"row " + kHostile, "1 mlp"},
                         .columns = {"drop erase", "column " + kHostile, "last"},
                         .values = {{-0.25, 0, 0.125}, {NAN, 0.0625, 1.0 / 3}},
                         .centre = 0});
  document.add(HeatBlock{.title = "heat",
                         .note = "",
                         .unit = "",
                         .rows = {"0", "1"},
                         .columns = {"100", "200"},
                         .values = {{0.1, 0.7}, {1.9, 1.3}}});
  document.add(BarsBlock{
      .title = "bars " + kHostile,
      .note = "",
      .unit = "ratio " + kHostile,
      .rows = {{"bar " + kHostile, 1.5, 1.25, 1.75}, {"below", -0.5, {}, {}}, {"none", NAN, {}, {}}}});
  return document;
}

}  // namespace ddl
