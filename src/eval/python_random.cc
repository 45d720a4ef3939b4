#include "eval/python_random.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/error.h"

namespace ddl {

// The reference's init_by_array with the one word `seed`, which starts from its init_genrand(19650218). Not
// what std::mt19937(seed) does, which is init_genrand(seed).
PythonRandom::PythonRandom(std::uint32_t seed) {
  state_[0] = 19650218u;
  for (std::uint32_t i = 1; i < kWords; ++i)
    state_[i] = 1812433253u * (state_[i - 1] ^ state_[i - 1] >> 30) + i;
  std::size_t i = 1;
  const auto mix = [&](std::uint32_t factor) {
    return state_[i] ^ (state_[i - 1] ^ state_[i - 1] >> 30) * factor;
  };
  const auto advance = [&] {
    if (++i < kWords) return;
    state_[0] = state_[kWords - 1];
    i = 1;
  };
  for (std::size_t round = 0; round < kWords; ++round, advance()) state_[i] = mix(1664525u) + seed;
  for (std::size_t round = 1; round < kWords; ++round, advance())
    state_[i] = mix(1566083941u) - static_cast<std::uint32_t>(i);
  state_[0] = 0x80000000u;
}

void PythonRandom::refill() {
  const auto twist = [](std::uint32_t upper, std::uint32_t lower, std::uint32_t far) {
    const std::uint32_t word = (upper & 0x80000000u) | (lower & 0x7fffffffu);
    return far ^ word >> 1 ^ (word & 1 ? 0x9908b0dfu : 0u);
  };
  std::size_t i = 0;
  for (; i < kWords - kShift; ++i) state_[i] = twist(state_[i], state_[i + 1], state_[i + kShift]);
  for (; i + 1 < kWords; ++i) state_[i] = twist(state_[i], state_[i + 1], state_[i + kShift - kWords]);
  state_[i] = twist(state_[i], state_[0], state_[kShift - 1]);
  next_ = 0;
}

std::uint32_t PythonRandom::bits32() {
  if (next_ == kWords) refill();
  std::uint32_t word = state_[next_++];
  word ^= word >> 11;
  word ^= word << 7 & 0x9d2c5680u;
  word ^= word << 15 & 0xefc60000u;
  return word ^ word >> 18;
}

double PythonRandom::uniform() {
  const std::uint32_t high = bits32() >> 5, low = bits32() >> 6;
  return (high * 67108864.0 + low) / 9007199254740992.0;
}

std::uint32_t PythonRandom::below(std::uint32_t n) {
  DDL_CHECK(n >= 1, "below(0)");
  const int spare_bits = 32 - std::bit_width(n);
  std::uint32_t drawn;
  do drawn = bits32() >> spare_bits;
  while (drawn >= n);
  return drawn;
}

std::vector<Index> PythonRandom::sample(Index n, Index k) {
  DDL_CHECK(0 <= k && k <= n && n <= std::numeric_limits<std::uint32_t>::max(), "sample({}, {})", n, k);
  // Where a list of everything is smaller than a set of what was drawn, Python draws from the list.
  double set_size = 21;
  if (k > 5) set_size += std::pow(4.0, std::ceil(std::log(3.0 * static_cast<double>(k)) / std::log(4.0)));
  std::vector<Index> drawn;
  if (static_cast<double>(n) <= set_size) {
    std::vector<Index> pool(static_cast<std::size_t>(n));
    std::iota(pool.begin(), pool.end(), Index{0});
    for (Index i = 0; i < k; ++i) {
      const std::uint32_t j = below(static_cast<std::uint32_t>(n - i));
      drawn.push_back(pool[j]);
      pool[j] = pool[static_cast<std::size_t>(n - i - 1)];
    }
    return drawn;
  }
  while (std::ssize(drawn) < k) {
    const Index j = below(static_cast<std::uint32_t>(n));
    if (std::find(drawn.begin(), drawn.end(), j) == drawn.end()) drawn.push_back(j);
  }
  return drawn;
}

}  // namespace ddl
