// Values read back from the places of a picture that charts.js drew.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace ddl {

// "linear 0 10 40 600": what values lie at which pixels.
struct Scale {
  bool log = false;
  double low = 0, high = 0, from = 0, to = 0;
  explicit Scale(const std::string& text) {
    std::istringstream words(text);
    std::string kind;
    words >> kind >> low >> high >> from >> to;
    log = kind == "log";
    EXPECT_TRUE(words && (log || kind == "linear")) << text;
  }
  double value_at(double pixel) const {
    const double share = (pixel - from) / (to - from);
    return log ? std::pow(10, std::log10(low) + share * (std::log10(high) - std::log10(low)))
               : low + share * (high - low);
  }
  // Pixels are written to a hundredth: the value must lie between half a hundredth to the left and to the right.
  bool shows(double value, double pixel) const {
    const double a = value_at(pixel - 0.005001), b = value_at(pixel + 0.005001);
    return std::min(a, b) <= value && value <= std::max(a, b);
  }
};

inline std::vector<std::pair<double, double>> points_of(const std::string& path) {  // "M1,2L3,4"
  std::vector<std::pair<double, double>> points;
  std::istringstream text(path);
  char letter = 0, comma = 0;
  for (double x = 0, y = 0; text >> letter && letter != 'Z' && text >> x >> comma >> y;)
    points.emplace_back(x, y);
  return points;
}

}  // namespace ddl
