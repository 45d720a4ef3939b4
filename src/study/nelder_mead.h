// The lowest point of a function without derivatives: the simplex search of Nelder and Mead (Computer Journal 7, 1965)
// with its usual coefficients (reflection 1, expansion 2, contraction and shrinking 1/2). A value of +infinity keeps
// it out of a region.
#pragma once

#include <vector>

#include "core/function_ref.h"
#include "core/index.h"

namespace ddl {

struct LowestPoint {
  std::vector<double> x;
  double value;
};
// From `start` with a first simplex of edges `step`; ends where the simplex is smaller than `tolerance` in every
// direction, or after `evaluations`.
LowestPoint nelder_mead(FunctionRef<double(const std::vector<double>&)> f, std::vector<double> start,
                        double step, double tolerance, Index evaluations);

}  // namespace ddl
