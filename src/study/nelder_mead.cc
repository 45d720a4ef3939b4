#include "study/nelder_mead.h"

#include <algorithm>
#include <cmath>

namespace ddl {
namespace {

double widest_edge(const std::vector<LowestPoint>& simplex) {
  double widest = 0;
  for (const LowestPoint& corner : simplex)
    for (std::size_t d = 0; d < corner.x.size(); ++d)
      widest = std::max(widest, std::abs(corner.x[d] - simplex.front().x[d]));
  return widest;
}

}  // namespace

LowestPoint nelder_mead(FunctionRef<double(const std::vector<double>&)> f, std::vector<double> start,
                        double step, double tolerance, Index evaluations) {
  const Index dims = std::ssize(start);
  Index used = 0;
  const auto at = [&](std::vector<double> x) {
    ++used;
    const double value = f(x);
    return LowestPoint{std::move(x), value};
  };
  std::vector<LowestPoint> simplex = {at(start)};
  for (Index d = 0; d < dims; ++d) {
    std::vector<double> corner = start;
    corner[d] += step;
    simplex.push_back(at(std::move(corner)));
  }
  const auto lower = [](const LowestPoint& a, const LowestPoint& b) { return a.value < b.value; };
  for (;;) {
    std::sort(simplex.begin(), simplex.end(), lower);
    if (used >= evaluations || widest_edge(simplex) < tolerance) return simplex.front();
    LowestPoint& worst = simplex.back();
    // On the line from the worst corner through the middle of the others: -1 is the worst, 0 the middle.
    const auto along = [&](double way) {
      std::vector<double> x(static_cast<std::size_t>(dims));
      for (Index d = 0; d < dims; ++d) {
        double middle = 0;
        for (Index c = 0; c < dims; ++c) middle += simplex[c].x[d] / static_cast<double>(dims);
        x[d] = middle + way * (middle - worst.x[d]);
      }
      return at(std::move(x));
    };
    LowestPoint reflected = along(1);
    if (reflected.value < simplex.front().value) {
      LowestPoint expanded = along(2);
      worst = expanded.value < reflected.value ? std::move(expanded) : std::move(reflected);
      continue;
    }
    if (reflected.value < simplex[dims - 1].value) {
      worst = std::move(reflected);
      continue;
    }
    LowestPoint contracted = along(reflected.value < worst.value ? 0.5 : -0.5);
    if (contracted.value < std::min(reflected.value, worst.value)) {
      worst = std::move(contracted);
      continue;
    }
    for (Index c = 1; c <= dims; ++c) {
      std::vector<double> x = simplex[c].x;
      for (Index d = 0; d < dims; ++d) x[d] = (x[d] + simplex.front().x[d]) / 2;
      simplex[c] = at(std::move(x));
    }
  }
}

}  // namespace ddl
