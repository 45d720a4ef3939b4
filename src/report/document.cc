#include "report/document.h"

#include <cmath>
#include <utility>

#include "core/error.h"

namespace ddl {
namespace {

constexpr const char* kFormat = "ddl-report";
constexpr int kVersion = 1;

Json numbers(const std::vector<double>& values) {
  Json list = Json::array();
  for (const double value : values) list.push_back(finite_or_null(value));
  return list;
}

const char* scale_name(AxisScale scale) { return scale == AxisScale::kLog ? "log" : "linear"; }

const char* style_name(LinesBlock::Style style) {
  switch (style) {
    case LinesBlock::Style::kPoints:
      return "points";
    case LinesBlock::Style::kDashed:
      return "dashed";
    case LinesBlock::Style::kLine:
      break;
  }
  return "line";
}

Json chart(const char* kind, const std::string& title, const std::string& note) {
  Json block{{"kind", kind}, {"title", title}};
  if (!note.empty()) block["note"] = note;
  return block;
}

Json series_json(const LinesBlock& block, const LinesBlock::Series& series) {
  Json json{{"name", series.name}};
  if (!series.group.empty()) json["group"] = series.group;
  json["x"] = Json::object();
  for (const LinesBlock::Axis& axis : block.axes) {
    const auto values = series.x.find(axis.key);
    DDL_CHECK(values != series.x.end() && values->second.size() == series.y.size(),
              "'{}', series '{}', axis '{}'", block.title, series.name, axis.key);
    json["x"][axis.key] = numbers(values->second);
  }
  json["y"] = numbers(series.y);
  DDL_CHECK(
      series.lo.size() == series.hi.size() && (series.lo.empty() || series.lo.size() == series.y.size()),
      "'{}', series '{}': {} values, a band of {} and {}", block.title, series.name, series.y.size(),
      series.lo.size(), series.hi.size());
  if (!series.lo.empty()) json["lo"] = numbers(series.lo), json["hi"] = numbers(series.hi);
  json["style"] = style_name(series.style);
  return json;
}

}  // namespace

Json finite_or_null(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

ReportDocument::ReportDocument(std::string title, std::string subtitle)
    : title_(std::move(title)), subtitle_(std::move(subtitle)) {}

void ReportDocument::section(const std::string& id, const std::string& title) {
  sections_.push_back(Json{{"id", id}, {"title", title}, {"blocks", Json::array()}});
}

void ReportDocument::add_block(Json block) {
  DDL_CHECK(!sections_.empty(), "a block of a report needs a section to be in");
  sections_.back()["blocks"].push_back(std::move(block));
}

void ReportDocument::add(const TextBlock& block) { add_block({{"kind", "text"}, {"text", block.text}}); }

void ReportDocument::add(const CodeBlock& block) { add_block({{"kind", "code"}, {"text", block.text}}); }

void ReportDocument::add(const ListBlock& block) {
  Json json{{"kind", "list"}, {"items", block.items}};
  if (block.warning) json["tone"] = "warning";
  add_block(std::move(json));
}

void ReportDocument::add(const AnswersBlock& block) {
  Json rows = Json::array();
  for (const AnswersBlock::Row& row : block.rows)
    rows.push_back(Json{{"question", row.question},
                        {"answer", row.answer},
                        {"verdict", verdict_name(row.verdict)},
                        {"detail", row.detail}});
  add_block({{"kind", "answers"}, {"rows", std::move(rows)}});
}

void ReportDocument::add(const TableBlock& block) {
  Json json{
      {"kind", "table"}, {"caption", block.caption}, {"columns", Json::array()}, {"rows", Json::array()}};
  for (const TableBlock::Column& column : block.columns) {
    Json one{{"name", column.name}, {"align", column.align == TableBlock::Align::kRight ? "right" : "left"}};
    if (column.digits) one["digits"] = *column.digits;
    json["columns"].push_back(std::move(one));
  }
  for (const std::vector<Json>& row : block.rows) {
    DDL_CHECK(row.size() == block.columns.size(), "'{}': {} columns, a row of {}", block.caption,
              block.columns.size(), row.size());
    Json cells = Json::array();
    for (const Json& cell : row)
      cells.push_back(cell.is_number_float() ? finite_or_null(cell.get<double>()) : cell);
    json["rows"].push_back(std::move(cells));
  }
  add_block(std::move(json));
}

void ReportDocument::add(const LinesBlock& block) {
  Json json = chart("lines", block.title, block.note);
  json["axes"] = Json::array();
  for (const LinesBlock::Axis& axis : block.axes)
    json["axes"].push_back(Json{{"key", axis.key}, {"label", axis.label}, {"scale", scale_name(axis.scale)}});
  json["y"] = {{"label", block.y_label}, {"scale", scale_name(block.y_scale)}};
  json["series"] = Json::array();
  for (const LinesBlock::Series& series : block.series) json["series"].push_back(series_json(block, series));
  add_block(std::move(json));
}

void ReportDocument::add(const ForestBlock& block) {
  Json json = chart("forest", block.title, block.note);
  json["unit"] = block.unit;
  if (block.margin > 0) json["margin"] = block.margin;
  json["rows"] = Json::array();
  for (const ForestBlock::Row& row : block.rows) {
    Json one{{"name", row.name},
             {"mean", finite_or_null(row.mean)},
             {"lo", finite_or_null(row.lo)},
             {"hi", finite_or_null(row.hi)},
             {"points", numbers(row.points)}};
    if (row.verdict) one["verdict"] = verdict_name(*row.verdict);
    json["rows"].push_back(std::move(one));
  }
  add_block(std::move(json));
}

void ReportDocument::add(const HeatBlock& block) {
  Json json = chart("heat", block.title, block.note);
  json["unit"] = block.unit;
  json["rows"] = block.rows;
  json["columns"] = block.columns;
  json["values"] = Json::array();
  DDL_CHECK(block.values.size() == block.rows.size(), "'{}': {} rows, values for {}", block.title,
            block.rows.size(), block.values.size());
  for (const std::vector<double>& row : block.values) {
    DDL_CHECK(row.size() == block.columns.size(), "'{}': {} columns, a row of {}", block.title,
              block.columns.size(), row.size());
    json["values"].push_back(numbers(row));
  }
  if (block.centre) json["centre"] = *block.centre;
  add_block(std::move(json));
}

void ReportDocument::add(const BarsBlock& block) {
  Json json = chart("bars", block.title, block.note);
  json["unit"] = block.unit;
  json["rows"] = Json::array();
  for (const BarsBlock::Row& row : block.rows) {
    Json one{{"name", row.name}, {"value", finite_or_null(row.value)}};
    if (row.lo && row.hi) one["lo"] = finite_or_null(*row.lo), one["hi"] = finite_or_null(*row.hi);
    json["rows"].push_back(std::move(one));
  }
  add_block(std::move(json));
}

Json ReportDocument::json() const {
  Json document{{"format", kFormat}, {"version", kVersion}, {"title", title_}, {"subtitle", subtitle_}};
  document["sections"] = Json::array();
  for (const Json& section : sections_)
    if (!section["blocks"].empty()) document["sections"].push_back(section);
  return document;
}

Json parse_report_document(const std::string& text, const std::string& source_name) {
  std::string error;
  Json document = parse_json(text, &error);
  if (!document.is_object())
    throw UserError("{}: expected a document that `ddl report --json` wrote{}{}", source_name,
                    error.empty() ? "" : ", found a file that is not JSON: ", error);
  const auto is_text = [](const Json& json, const char* key) {
    return json.contains(key) && json[key].is_string();
  };
  if (!is_text(document, "format") || document["format"] != kFormat)
    throw UserError("{}: expected \"format\": \"{}\"; a document that `ddl report --json` wrote has it",
                    source_name, kFormat);
  if (!document.contains("version") || document["version"] != kVersion)
    throw UserError("{}: expected version {}, found {}; another version of this program wrote it",
                    source_name, kVersion,
                    document.contains("version") ? to_line(document["version"]) : "none");
  if (!is_text(document, "title") || !document.contains("sections") || !document["sections"].is_array())
    throw UserError("{}: expected a title and a list of sections", source_name);
  for (const Json& section : document["sections"]) {
    const bool complete = section.is_object() && is_text(section, "id") && is_text(section, "title") &&
                          section.contains("blocks") && section["blocks"].is_array();
    if (!complete)
      throw UserError("{}: every section needs an id, a title and a list of blocks", source_name);
    for (const Json& block : section["blocks"])
      if (!block.is_object() || !is_text(block, "kind"))
        throw UserError("{}: section '{}': every block needs a kind", source_name,
                        section["id"].get<std::string>());
  }
  return document;
}

}  // namespace ddl
