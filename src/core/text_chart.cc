#include "core/text_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace ddl {
namespace {

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -std::numeric_limits<double>::infinity();
  void add(double value) { low = std::min(low, value), high = std::max(high, value); }
  Index cell(double value, Index cells) const {  // 0 .. cells - 1
    if (!(high > low)) return 0;
    const auto at = static_cast<Index>((value - low) / (high - low) * static_cast<double>(cells - 1) + 0.5);
    return std::clamp<Index>(at, 0, cells - 1);
  }
};

}  // namespace

std::string text_chart(const std::vector<ChartSeries>& series, const ChartShape& shape) {
  const auto place = [&](double x) { return shape.log_x ? std::log10(x) : x; };
  const auto usable = [&](const std::pair<double, double>& p) {
    return std::isfinite(place(p.first)) && std::isfinite(p.second);
  };
  Range x, y;
  Index points = 0;
  for (const ChartSeries& s : series)
    for (const auto& point : s.points)
      if (usable(point)) x.add(place(point.first)), y.add(point.second), ++points;
  if (points < 2) return "";

  std::vector<std::string> grid(static_cast<std::size_t>(shape.rows),
                                std::string(static_cast<std::size_t>(shape.columns), ' '));
  for (const ChartSeries& s : series)
    for (const auto& point : s.points) {
      if (!usable(point)) continue;
      const Index row = shape.rows - 1 - y.cell(point.second, shape.rows);
      char& cell = grid[static_cast<std::size_t>(row)]
                       [static_cast<std::size_t>(x.cell(place(point.first), shape.columns))];
      cell = cell == ' ' || cell == s.mark ? s.mark : '#';
    }

  std::string text;
  for (Index row = 0; row < shape.rows; ++row) {
    const bool labelled = row == 0 || row == shape.rows - 1;
    const std::string label = labelled ? fmt::format("{:.3g}", row == 0 ? y.high : y.low) : "";
    std::string line = fmt::format("{:>9} |{}", label, grid[static_cast<std::size_t>(row)]);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  const auto end = [&](double value) {
    return fmt::format("{:.3g}", shape.log_x ? std::pow(10, value) : value);
  };
  const std::string left = end(x.low), right = end(x.high);
  text += fmt::format("{:>9} +{}\n", "", std::string(static_cast<std::size_t>(shape.columns), '-'));
  text +=
      fmt::format("{:>10} {}{:>{}}\n", "", left, right, std::max<Index>(1, shape.columns - std::ssize(left)));
  if (series.size() > 1) {
    std::string names;
    for (const ChartSeries& s : series) names += fmt::format("   {} {}", s.mark, s.name);
    text += fmt::format("{:>8}{}   # both\n", "", names);
  }
  return text;
}

}  // namespace ddl
