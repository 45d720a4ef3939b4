// A random order of [0, n) that is computed, not stored: element i of the order in constant time and memory.
// A Feistel network over the smallest even number of bits that holds n; values outside are walked on until
// one is inside (fewer than four steps on average).
#pragma once

#include <array>
#include <cstdint>

#include "core/index.h"

namespace ddl {

class Permutation {
 public:
  // A different order for each (seed, stream).
  Permutation(Index n, std::uint64_t seed, std::uint64_t stream);
  Index operator()(Index i) const;  // a bijection of [0, n)

 private:
  static constexpr int kRounds = 8;
  std::uint64_t shuffle_once(std::uint64_t x) const;
  std::uint64_t n_;
  int half_bits_;
  std::array<std::uint64_t, kRounds> keys_;
};

}  // namespace ddl
