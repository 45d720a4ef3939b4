#include "study/nonnegative_least_squares.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace ddl {
namespace {

struct NormalEquations {
  Index unknowns;
  std::vector<double> ata, atb;  // A^T W A, A^T W b
};

NormalEquations normal_equations(std::span<const double> a, std::span<const double> b,
                                 std::span<const double> weights, Index unknowns) {
  NormalEquations eq{unknowns, std::vector<double>(static_cast<std::size_t>(unknowns * unknowns)),
                     std::vector<double>(static_cast<std::size_t>(unknowns))};
  for (Index i = 0; i < std::ssize(b); ++i) {
    const auto row = a.subspan(static_cast<std::size_t>(i * unknowns), static_cast<std::size_t>(unknowns));
    for (Index j = 0; j < unknowns; ++j) {
      if (row[j] == 0) continue;
      eq.atb[j] += weights[i] * row[j] * b[i];
      for (Index k = 0; k < unknowns; ++k) eq.ata[j * unknowns + k] += weights[i] * row[j] * row[k];
    }
  }
  return eq;
}

// The unconstrained solution over the unknowns in `set`, zero elsewhere, by Cholesky. A column that the earlier ones
// explain but for rounding gets zero.
std::vector<double> solve_over(const NormalEquations& eq, std::span<const Index> set) {
  const Index n = std::ssize(set);
  std::vector<double> lower(static_cast<std::size_t>(n * n)), y(static_cast<std::size_t>(n));
  std::vector<bool> dropped(static_cast<std::size_t>(n));
  for (Index i = 0; i < n; ++i) {
    for (Index j = 0; j <= i; ++j) {
      double sum = eq.ata[set[i] * eq.unknowns + set[j]];
      const double before = sum;
      for (Index k = 0; k < j; ++k) sum -= lower[i * n + k] * lower[j * n + k];
      if (i == j) {
        dropped[i] = !(sum > 1e-13 * before);
        lower[i * n + i] = dropped[i] ? 1 : std::sqrt(sum);
      } else {
        lower[i * n + j] = dropped[j] ? 0 : sum / lower[j * n + j];
      }
    }
    double sum = eq.atb[set[i]];
    for (Index k = 0; k < i; ++k) sum -= lower[i * n + k] * y[k];
    y[i] = dropped[i] ? 0 : sum / lower[i * n + i];
  }
  std::vector<double> x(static_cast<std::size_t>(eq.unknowns));
  for (Index i = n - 1; i >= 0; --i) {
    if (dropped[i]) continue;
    double sum = y[i];
    for (Index k = i + 1; k < n; ++k) sum -= lower[k * n + i] * x[set[k]];
    x[set[i]] = sum / lower[i * n + i];
  }
  return x;
}

// The unknown, of those at zero, whose rise lowers the sum of squares fastest; -1 where none does.
Index steepest(const NormalEquations& eq, std::span<const double> x, std::span<const Index> set) {
  Index best = -1;
  double best_slope = 0;
  for (Index j = 0; j < eq.unknowns; ++j) {
    if (std::find(set.begin(), set.end(), j) != set.end()) continue;
    double slope = eq.atb[j], size = std::abs(eq.atb[j]);
    for (Index k = 0; k < eq.unknowns; ++k) {
      slope -= eq.ata[j * eq.unknowns + k] * x[k];
      size += std::abs(eq.ata[j * eq.unknowns + k] * x[k]);
    }
    if (slope > 1e-12 * size && slope > best_slope) {
      best_slope = slope;
      best = j;
    }
  }
  return best;
}

}  // namespace

std::vector<double> nonnegative_least_squares(std::span<const double> a, std::span<const double> b,
                                              std::span<const double> weights, Index unknowns) {
  DDL_CHECK(a.size() == b.size() * static_cast<std::size_t>(unknowns) && b.size() == weights.size(),
            "{} numbers for {} rows of {}, {} weights", a.size(), b.size(), unknowns, weights.size());
  const NormalEquations eq = normal_equations(a, b, weights, unknowns);
  const auto positive = [](double v) { return v > 0; };

  // Mostly no bound is active, and this is all.
  std::vector<Index> set;
  for (Index j = 0; j < unknowns; ++j) set.push_back(j);
  std::vector<double> x = solve_over(eq, set);
  if (std::all_of(x.begin(), x.end(), positive)) return x;

  set.clear();
  std::fill(x.begin(), x.end(), 0.0);
  for (Index round = 0; round < 3 * unknowns; ++round) {  // their bound on the rounds
    const Index next = steepest(eq, x, set);
    if (next < 0) break;
    set.push_back(next);
    while (!set.empty()) {
      const std::vector<double> target = solve_over(eq, set);
      // Go from x towards it until an unknown would turn negative; that one leaves the set.
      double way = 1;
      Index leaves = -1;
      for (const Index j : set)
        if (target[j] <= 0 && x[j] / (x[j] - target[j] + 1e-300) < way) {
          way = x[j] / (x[j] - target[j] + 1e-300);
          leaves = j;
        }
      for (Index j = 0; j < unknowns; ++j) x[j] += way * (target[j] - x[j]);
      if (leaves < 0) break;
      x[leaves] = 0;
      std::erase(set, leaves);
    }
  }
  return x;
}

}  // namespace ddl
