// Half precision (IEEE binary16), which files hold and nothing here computes with.
#pragma once

#include <bit>
#include <cstdint>

namespace ddl {

inline float half_to_float(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1fu, fraction = half & 0x3ffu;
  if (exponent == 0) {  // zero and subnormals: fraction * 2^-24, exact in f32
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
  const std::uint32_t f32_exponent = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | f32_exponent << 23 | fraction << 13);
}

}  // namespace ddl
