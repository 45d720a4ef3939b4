#include "core/rng.h"

#include <cmath>
#include <numbers>

namespace ddl {

Philox4 philox4x32(Philox4 x, std::array<std::uint32_t, 2> key) {
  constexpr std::uint32_t kMul0 = 0xD2511F53u, kMul1 = 0xCD9E8D57u;    // the paper's round multipliers
  constexpr std::uint32_t kWeyl0 = 0x9E3779B9u, kWeyl1 = 0xBB67AE85u;  // golden ratio, sqrt(3) - 1
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{kMul0} * x[0];
    const std::uint64_t p1 = std::uint64_t{kMul1} * x[2];
    x = {static_cast<std::uint32_t>(p1 >> 32) ^ x[1] ^ key[0], static_cast<std::uint32_t>(p1),
         static_cast<std::uint32_t>(p0 >> 32) ^ x[3] ^ key[1], static_cast<std::uint32_t>(p0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return x;
}

Random::Random(std::uint64_t seed, std::string_view stream_name) : seed_(seed), stream_(0xcbf29ce484222325u) {
  for (const char c : stream_name)
    stream_ = (stream_ ^ static_cast<unsigned char>(c)) * 0x100000001b3u;  // FNV-1a
}

Philox4 Random::block(std::uint64_t counter) const {
  return philox4x32({static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32),
                     static_cast<std::uint32_t>(stream_), static_cast<std::uint32_t>(stream_ >> 32)},
                    {static_cast<std::uint32_t>(seed_), static_cast<std::uint32_t>(seed_ >> 32)});
}

std::uint64_t Random::bits(std::uint64_t counter) const {
  const Philox4 x = block(counter);
  return std::uint64_t{x[1]} << 32 | x[0];
}

double Random::uniform(std::uint64_t counter) const {
  return static_cast<double>(bits(counter) >> 11) * 0x1p-53;
}

double Random::normal(std::uint64_t counter) const {
  const Philox4 x = block(counter);
  const double u = (static_cast<double>((std::uint64_t{x[1]} << 32 | x[0]) >> 11) + 1) * 0x1p-53;  // (0, 1]
  const double v = static_cast<double>((std::uint64_t{x[3]} << 32 | x[2]) >> 11) * 0x1p-53;        // [0, 1)
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
}

std::uint64_t Random::below(std::uint64_t counter, std::uint64_t n) const {
  return static_cast<std::uint64_t>((static_cast<unsigned __int128>(bits(counter)) * n) >> 64);
}

}  // namespace ddl
