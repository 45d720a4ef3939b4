#include "report/metrics_table.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <string_view>

#include "core/error.h"
#include "core/json.h"
#include "core/options.h"
#include "io/file.h"
#include "report/run_records.h"
#include "train/run_folder.h"

namespace ddl {
namespace {

using Numbers = std::map<std::string, double>;

// The columns of all runs, in the order in which they were first seen.
class Columns {
 public:
  void see(const std::string& name) {
    if (!place_.contains(name)) place_[name] = std::ssize(names_), names_.push_back(name);
  }
  const std::vector<std::string>& names() const { return names_; }

 private:
  std::vector<std::string> names_;
  std::map<std::string, Index> place_;
};

void add_number(Numbers& row, Columns& columns, const std::string& name, const Json& value) {
  if (!value.is_number() || !std::isfinite(value.get<double>())) return;
  columns.see(name);
  row[name] = value.get<double>();
}

void add_gates(Numbers& row, Columns& columns, const Json& record) {
  const auto sublayers = record.find("sublayers");
  if (sublayers == record.end() || !sublayers->is_array()) return;
  for (std::size_t s = 0; s < sublayers->size(); ++s) {
    const Json& each = (*sublayers)[s];
    if (each.is_object() && each.contains("series") && each["series"].is_object() &&
        each["series"].contains("gate") && each["series"]["gate"].is_object() &&
        each["series"]["gate"].contains("mean"))
      add_number(row, columns, fmt::format("gate_{}", s), each["series"]["gate"]["mean"]);
  }
}

// By step. Where a run went back to an earlier step, what it had recorded from there on was abandoned.
std::map<Index, Numbers> read_steps(const std::string& run, Columns& columns) {
  std::map<Index, Numbers> steps;
  std::map<std::string, Index> newest;  // of each event, since the run last went back
  const auto drop_from = [&](std::map<Index, Numbers>::iterator first) {
    steps.erase(first, steps.end());
    newest.clear();
  };
  const std::string file = run + "/metrics.jsonl";
  if (!std::filesystem::exists(file)) return steps;
  const std::string text = read_file(file, kMetricsBytes);
  for (std::size_t from = 0; from < text.size();) {
    const std::size_t end = text.find('\n', from);
    if (end == std::string::npos) break;  // it may be being written
    const Json record = parse_json(std::string_view(text).substr(from, end - from));
    from = end + 1;
    if (!record.is_object() || !record.contains("event") || !record["event"].is_string() ||
        !record.contains("step") || !record["step"].is_number_integer())
      continue;
    const std::string event = record["event"].get<std::string>();
    const std::string prefix = event == "validation" ? "validation_" : "";
    const Index step = record["step"].get<Index>();
    if (event == "start" || event == "resume") drop_from(steps.upper_bound(step));
    if (event != "step" && event != "validation" && event != "gates") continue;
    if (newest.contains(event) && step <= newest[event]) drop_from(steps.lower_bound(step));
    newest[event] = step;
    Numbers& row = steps[step];
    if (event == "gates") {
      add_gates(row, columns, record);
      continue;
    }
    for (const auto& [key, value] : record.items())
      if (key != "v" && key != "step" && key != "event") add_number(row, columns, prefix + key, value);
  }
  return steps;
}

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

std::string number_text(double value) { return to_line(Json(value)); }  // shortest that gives the same bits

}  // namespace

MetricsTable metrics_table(const std::vector<std::string>& paths, const std::vector<std::string>& wanted) {
  const std::vector<RunRecords> runs = read_all_runs(find_runs(paths));  // for their names
  Columns columns;
  std::vector<std::map<Index, Numbers>> steps;
  for (const RunRecords& run : runs) steps.push_back(read_steps(run.path, columns));
  MetricsTable table{wanted.empty() ? columns.names() : wanted, {}};
  for (const std::string& name : wanted)
    if (std::ranges::find(columns.names(), name) == columns.names().end())
      throw UserError("no run has a column '{}'; there are {} (nearest: {})", name,
                      fmt::join(columns.names(), ", "), nearest(name, columns.names()));
  for (std::size_t r = 0; r < runs.size(); ++r)
    for (const auto& [step, numbers] : steps[r]) {
      MetricsTable::Row row{runs[r].name, step, {}};
      bool any = false;
      for (const std::string& name : table.columns) {
        const auto at = numbers.find(name);
        row.values.push_back(at == numbers.end() ? std::nullopt : std::optional(at->second));
        any = any || at != numbers.end();
      }
      if (any) table.rows.push_back(std::move(row));
    }
  return table;
}

std::string to_csv(const MetricsTable& table) {
  std::string out = "run,step";
  for (const std::string& name : table.columns) out += "," + csv_field(name);
  out += "\n";
  for (const MetricsTable::Row& row : table.rows) {
    out += fmt::format("{},{}", csv_field(row.run), row.step);
    for (const auto& value : row.values) out += "," + (value ? number_text(*value) : "");
    out += "\n";
  }
  return out;
}

std::string to_json_lines(const MetricsTable& table) {
  std::string out;
  for (const MetricsTable::Row& row : table.rows) {
    Json json{{"run", row.run}, {"step", row.step}};
    for (std::size_t i = 0; i < row.values.size(); ++i)
      if (row.values[i]) json[table.columns[i]] = *row.values[i];
    out += to_line(json) + "\n";
  }
  return out;
}

std::string to_screen(const MetricsTable& table) {
  std::vector<std::vector<std::string>> lines(1, {"run", "step"});
  lines[0].insert(lines[0].end(), table.columns.begin(), table.columns.end());
  for (const MetricsTable::Row& row : table.rows) {
    std::vector<std::string>& line =
        lines.emplace_back(std::vector<std::string>{row.run, std::to_string(row.step)});
    for (const auto& value : row.values) line.push_back(value ? fmt::format("{:.5g}", *value) : "");
  }
  std::vector<std::size_t> widths(lines[0].size());
  for (const auto& line : lines)
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  std::string out;
  for (const auto& line : lines) {
    out += fmt::format("{:<{}}", line[0], widths[0]);
    for (std::size_t i = 1; i < line.size(); ++i) out += fmt::format("  {:>{}}", line[i], widths[i]);
    out += "\n";
  }
  return out;
}

}  // namespace ddl
