// Random numbers as pure functions of (seed, stream, counter): nothing to store, nothing to advance, any
// thread may ask for any number.
// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace ddl {

using Philox4 = std::array<std::uint32_t, 4>;
Philox4 philox4x32(Philox4 counter, std::array<std::uint32_t, 2> key);

class Random {
 public:
  constexpr Random(std::uint64_t seed, std::uint64_t stream) : seed_(seed), stream_(stream) {}
  // A stream that is a function of a name, so that adding one never shifts the draws of another.
  Random(std::uint64_t seed, std::string_view stream_name);

  std::uint64_t bits(std::uint64_t counter) const;
  double uniform(std::uint64_t counter) const;                        // [0, 1), 53 bits
  double normal(std::uint64_t counter) const;                         // mean 0, variance 1 (Box-Muller)
  std::uint64_t below(std::uint64_t counter, std::uint64_t n) const;  // [0, n); n >= 1; bias below n / 2^64

 private:
  Philox4 block(std::uint64_t counter) const;
  std::uint64_t seed_, stream_;
};

}  // namespace ddl
