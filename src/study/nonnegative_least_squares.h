// min over x >= 0 of sum over rows i of w_i (a_i . x - b_i)^2, by the active sets of Lawson and Hanson ("Solving Least
// Squares Problems", 1974, chapter 23) on the normal equations. For a few dozen unknowns whose columns the caller
// has scaled to about the same size.
#pragma once

#include <span>
#include <vector>

#include "core/index.h"

namespace ddl {

// `a` has a row of `unknowns` numbers for every number in `b` and `weights`.
std::vector<double> nonnegative_least_squares(std::span<const double> a, std::span<const double> b,
                                              std::span<const double> weights, Index unknowns);

}  // namespace ddl
