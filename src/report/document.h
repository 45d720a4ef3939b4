// The document behind a report page: a title and sections of blocks (text, tables, charts), as JSON. docs/report.md
// describes every block. A page (page.h) shows any such document; runs, studies and audits each compose their own.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/verdict.h"

namespace ddl {

struct TextBlock {
  std::string text;  // plain; a line break is one
};
struct CodeBlock {
  std::string text;
};
struct ListBlock {
  std::vector<std::string> items;
  bool warning = false;  // set off from the rest
};

struct AnswersBlock {
  struct Row {
    std::string question, answer;
    Verdict verdict = Verdict::kUndecided;
    std::string detail;
  };
  std::vector<Row> rows;
};

struct TableBlock {
  enum class Align { kLeft, kRight };
  struct Column {
    std::string name;
    Align align = Align::kLeft;
    std::optional<int> digits = {};  // after the point, for all numbers of the column
  };
  std::string caption;
  std::vector<Column> columns;
  std::vector<std::vector<Json>> rows;  // texts, numbers, null
};

enum class AxisScale { kLinear, kLog };

struct LinesBlock {
  struct Axis {  // one of those the reader may choose for x
    std::string key, label;
    AxisScale scale = AxisScale::kLinear;
  };
  enum class Style { kLine, kPoints, kDashed };
  struct Series {
    std::string name;
    std::string group;                             // series of a group share colour and legend; "": its own
    std::map<std::string, std::vector<double>> x;  // by the axis' key, each as long as y
    std::vector<double> y;
    std::vector<double> lo, hi;  // a band; empty: none
    Style style = Style::kLine;
  };
  std::string title, note;
  std::vector<Axis> axes;
  std::string y_label;
  AxisScale y_scale = AxisScale::kLinear;
  std::vector<Series> series;
};

struct ForestBlock {
  struct Row {
    std::string name;
    double mean = 0, lo = 0, hi = 0;  // NaN: without an interval
    std::vector<double> points;       // what the mean is of
    std::optional<Verdict> verdict = {};
  };
  std::string title, note, unit;
  double margin = 0;  // differences up to it are of no interest; 0: none is named
  std::vector<Row> rows;
};

struct HeatBlock {
  std::string title, note, unit;
  std::vector<std::string> rows, columns;
  std::vector<std::vector<double>> values;  // [row][column]; NaN: no value
  std::optional<double> centre = {};        // two colours that meet here; otherwise one that deepens
};

struct BarsBlock {
  struct Row {
    std::string name;
    double value = 0;
    std::optional<double> lo = {}, hi = {};
  };
  std::string title, note, unit;
  std::vector<Row> rows;
};

// A number for JSON: null where it is not finite, which JSON has no word for.
Json finite_or_null(double value);

class ReportDocument {
 public:
  ReportDocument(std::string title, std::string subtitle);

  // A new section; what is added from now on belongs to it. One that stays empty is left out. `id` is its
  // address in the page: small letters and dashes, once in a document.
  void section(const std::string& id, const std::string& title);

  void add(const TextBlock& block);
  void add(const CodeBlock& block);
  void add(const ListBlock& block);
  void add(const AnswersBlock& block);
  void add(const TableBlock& block);
  void add(const LinesBlock& block);
  void add(const ForestBlock& block);
  void add(const HeatBlock& block);
  void add(const BarsBlock& block);

  Json json() const;

 private:
  void add_block(Json block);
  std::string title_, subtitle_;
  std::vector<Json> sections_;
};

// Reads what ReportDocument::json() wrote. Throws UserError where it is no such document.
Json parse_report_document(const std::string& text, const std::string& source_name);

}  // namespace ddl
