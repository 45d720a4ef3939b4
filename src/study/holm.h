// Holm's step-down procedure: several questions asked at once, with the chance of any false positive held.
// With the p-values in ascending order, p_(1) <= ... <= p_(m):
//
//   adjusted_(i) = max over j <= i of min(1, (m - j + 1) p_(j))
//
// A question is answered at level a where its adjusted p-value is at most a. Holds for any dependence between the
// questions (Holm, "A simple sequentially rejective multiple test procedure", Scand. J. Statist. 6, 1979).
#pragma once

#include <span>
#include <vector>

namespace ddl {

// In the order of `p`, every one of which is in [0, 1]. A question without an answer yet has p = 1.
std::vector<double> holm_adjusted(std::span<const double> p);

}  // namespace ddl
