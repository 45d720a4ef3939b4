// Curves drawn with characters.
#include "core/text_chart.h"

#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

namespace ddl {
namespace {

TEST(TextChart, PutsPointsWhereTheyBelong) {
  const std::string chart = text_chart(
      {{"a", 'a', {{0, 3}, {1, 1}}}, {"b", 'b', {{0, 3}, {1, 2}, {0.5, NAN}}}}, {.columns = 5, .rows = 3});
  EXPECT_EQ(chart,
            "        3 |#\n"
            "          |    b\n"
            "        1 |    a\n"
            "          +-----\n"
            "           0   1\n"
            "           a a   b b   # both\n");
}

TEST(TextChart, LogarithmsAndWidth) {
  ChartSeries s{"loss", '*'};
  for (int i = -6; i <= 0; ++i) s.points.emplace_back(std::pow(10, i), i * i);
  std::istringstream lines(text_chart({s}, {.columns = 61, .rows = 5, .log_x = true}));
  std::string line;
  std::getline(lines, line);
  EXPECT_EQ(line, "       36 |*");
  while (std::getline(lines, line)) EXPECT_LE(line.size(), 73u) << line;
  EXPECT_EQ(text_chart({{"one", '*', {{1, 1}}}}, {}), "");
}

}  // namespace
}  // namespace ddl
