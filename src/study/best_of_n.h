// What tuning buys: the expected best (lowest) loss of n trials, drawn without replacement from the N that were made.
// With the losses in ascending order,
//
//   best(n) = sum over i of x_(i) C(N - i, n - 1) / C(N, n)        x_(i) is the lowest, the others come from N - i
//
// which is unbiased for the minimum of n new trials, unlike the plug-in estimate with replacement (Tang et al.,
// "Showing your work doesn't always work", ACL 2020, on Dodge et al., EMNLP 2019).
#pragma once

#include <span>
#include <vector>

namespace ddl {

// best(1) ... best(N). A trial that diverged (not finite) counts as +infinity, so best(n) is infinite while a draw of n
// may consist of such trials alone.
std::vector<double> expected_best(std::span<const double> losses);

}  // namespace ddl
