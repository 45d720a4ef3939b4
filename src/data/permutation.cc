#include "data/permutation.h"

#include <algorithm>
#include <bit>

#include "core/rng.h"

namespace ddl {

Permutation::Permutation(Index n, std::uint64_t seed, std::uint64_t stream)
    : n_(static_cast<std::uint64_t>(n)) {
  DDL_CHECK(n >= 1, "{} elements", n);
  const int bits = std::bit_width(n_ - 1);
  half_bits_ = std::max(1, (bits + 1) / 2);
  const Random random(seed, stream);
  for (int r = 0; r < kRounds; ++r) keys_[r] = random.bits(static_cast<std::uint64_t>(r));
}

std::uint64_t Permutation::shuffle_once(std::uint64_t x) const {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  std::uint64_t left = x >> half_bits_, right = x & mask;
  for (const std::uint64_t key : keys_) {
    // Any function of (right, key) gives a bijection; this one mixes every bit into every other.
    std::uint64_t h = (right + 1) * 0x9e3779b97f4a7c15u ^ key;
    h = (h ^ h >> 32) * 0xd6e8feb86659fd93u;
    h = (h ^ h >> 32) * 0xd6e8feb86659fd93u;
    h ^= h >> 32;
    const std::uint64_t next = left ^ (h & mask);
    left = right;
    right = next;
  }
  return left << half_bits_ | right;
}

Index Permutation::operator()(Index i) const {
  DDL_DCHECK(i >= 0 && static_cast<std::uint64_t>(i) < n_, "{} of {}", i, n_);
  std::uint64_t x = static_cast<std::uint64_t>(i);
  do x = shuffle_once(x);
  while (x >= n_);
  return static_cast<Index>(x);
}

}  // namespace ddl
