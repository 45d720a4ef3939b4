// Curves drawn with characters, for a terminal.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/index.h"

namespace ddl {

struct ChartSeries {
  std::string name;
  char mark = '*';
  std::vector<std::pair<double, double>> points = {};  // x, y; what is not finite is left out
};

struct ChartShape {
  Index columns = 60, rows = 10;  // of the drawing itself; labels come on top
  bool log_x = false;
};

// Lines of at most columns + 12 characters: the curves, an axis with the ends of x, and where there are several
// series their names. Where two meet, a '#' stands for both. Empty where there are fewer than two points.
std::string text_chart(const std::vector<ChartSeries>& series, const ChartShape& shape);

}  // namespace ddl
