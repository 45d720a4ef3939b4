// Sums over features that audits take for every token. Compiled for speed (src/CMakeLists.txt).
#pragma once

#include <vector>

#include "core/exec.h"
#include "core/index.h"

namespace ddl {

double dot(const float* a_C, const float* b_C, Index C);
inline double square(const float* a_C, Index C) { return dot(a_C, a_C, C); }

// How many directions rows spread over. With L_i the eigenvalues of their covariance:
//   effective_rank = (sum L_i)^2 / sum L_i^2        C where all directions are alike, 1 where there is one
//   mean_share     = |mean|^2 / mean |row|^2        what all rows have in common; the rank leaves it out
struct DirectionSpread {
  double effective_rank = 0, mean_share = 0;
};
// rows_MC is changed: centred. No eigenvalues are computed: sum L_i is the covariance's trace, sum L_i^2 the sum of its
// squared elements.
DirectionSpread spread(std::vector<float>& rows_MC, Index C, const Exec& ex);

}  // namespace ddl
