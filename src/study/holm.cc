#include "study/holm.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "core/index.h"

namespace ddl {

std::vector<double> holm_adjusted(std::span<const double> p) {
  for (const double value : p) DDL_CHECK(value >= 0 && value <= 1, "p = {}", value);
  std::vector<Index> order(p.size());
  std::iota(order.begin(), order.end(), Index{0});
  std::stable_sort(order.begin(), order.end(), [&](Index a, Index b) { return p[a] < p[b]; });
  std::vector<double> adjusted(p.size());
  double largest = 0;
  Index hypotheses_left = std::ssize(p);
  for (const Index i : order) {
    largest = std::max(largest, std::min(1.0, static_cast<double>(hypotheses_left--) * p[i]));
    adjusted[i] = largest;
  }
  return adjusted;
}

}  // namespace ddl
