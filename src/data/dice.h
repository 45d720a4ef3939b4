// Draws one after another from a stream of its own: for code that tells a story rather than fills an array.
#pragma once

#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "core/index.h"
#include "core/rng.h"

namespace ddl {

class Dice {
 public:
  Dice(std::uint64_t seed, Index stream) : random_(seed, static_cast<std::uint64_t>(stream)) {}
  Index below(Index n) {
    return static_cast<Index>(random_.below(counter_++, static_cast<std::uint64_t>(n)));
  }
  bool chance(double p) { return random_.uniform(counter_++) < p; }
  template <class Container>
  const auto& pick(const Container& items) {
    return items[static_cast<std::size_t>(below(std::ssize(items)))];
  }
  // 0 ... n - 1 in random order.
  std::vector<Index> order(Index n) {
    std::vector<Index> items(static_cast<std::size_t>(n));
    std::iota(items.begin(), items.end(), Index{0});
    for (Index i = n - 1; i > 0; --i) std::swap(items[i], items[below(i + 1)]);
    return items;
  }
  // An index with probability proportional to its weight; -1 where all are zero.
  Index weighted(std::span<const double> weights) {
    double total = 0;
    for (const double w : weights) total += w;
    double left = random_.uniform(counter_++) * total;
    Index last = -1;
    for (Index i = 0; i < std::ssize(weights); ++i) {
      if (weights[i] <= 0) continue;
      last = i;
      left -= weights[i];
      if (left < 0) break;
    }
    return last;
  }

 private:
  Random random_;
  std::uint64_t counter_ = 0;
};

}  // namespace ddl
