// The one signed index type, and integer helpers that refuse to lose information.
//
// Shape letters used in names throughout the project (memory order, last is contiguous):
//   B batch   T time   N = B*T tokens   C width (the paper's d)   D value channels (the paper's d_v)
//   H heads   K head size   F MLP width   V vocabulary
//   O outputs and I inputs of a matrix   E taps of a convolution   R rows of a part   S sublayers
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/error.h"

namespace ddl {

using Index = std::ptrdiff_t;

constexpr Index ceil_div(Index a, Index b) { return (a + b - 1) / b; }
constexpr Index round_up(Index a, Index multiple) { return ceil_div(a, multiple) * multiple; }

// a / b where a remainder would be a bug.
inline Index div_exact(Index a, Index b) {
  DDL_CHECK(b != 0 && a % b == 0, "{} is not a multiple of {}", a, b);
  return a / b;
}

// An integer conversion that aborts instead of changing the value.
template <class To, class From>
To narrow(From value) {
  const To result = static_cast<To>(value);
  DDL_CHECK(static_cast<From>(result) == value && (result < To{}) == (value < From{}), "{} does not fit",
            value);
  return result;
}

}  // namespace ddl
