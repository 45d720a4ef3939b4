// The generator of CPython's `random` module, number for number: MT19937 (Matsumoto and Nishimura, 1998) with
// the module's seeding and its sample(). Few-shot examples and bootstrap errors of the Python harness are
// drawn with it, so its draws are part of a score.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/index.h"

namespace ddl {

class PythonRandom {
 public:
  explicit PythonRandom(std::uint32_t seed);  // random.Random(seed)

  std::uint32_t bits32();
  double uniform();                             // random(): [0, 1), 53 bits
  std::uint32_t below(std::uint32_t n);         // n >= 1
  std::vector<Index> sample(Index n, Index k);  // sample(range(n), k), in the order drawn; 0 <= k <= n

 private:
  static constexpr std::size_t kWords = 624, kShift = 397;
  void refill();
  std::array<std::uint32_t, kWords> state_;
  std::size_t next_ = kWords;  // of state_, not handed out yet
};

}  // namespace ddl
