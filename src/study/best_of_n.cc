#include "study/best_of_n.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/index.h"

namespace ddl {

std::vector<double> expected_best(std::span<const double> losses) {
  std::vector<double> sorted(losses.begin(), losses.end());
  for (double& loss : sorted)
    if (!std::isfinite(loss)) loss = std::numeric_limits<double>::infinity();
  std::sort(sorted.begin(), sorted.end());
  const Index trials = std::ssize(sorted);
  std::vector<double> best(sorted.size());
  for (Index n = 1; n <= trials; ++n) {
    // C(N-1, n-1) / C(N, n) = n / N, and each next coefficient from the one before.
    double weight = static_cast<double>(n) / static_cast<double>(trials);
    double sum = 0;
    for (Index i = 0; i + n <= trials; ++i) {
      sum += weight * sorted[i];
      if (i + 1 < trials) weight *= static_cast<double>(trials - i - n) / static_cast<double>(trials - i - 1);
    }
    best[n - 1] = sum;
  }
  return best;
}

}  // namespace ddl
