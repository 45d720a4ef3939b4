// A comparison that may stop early. At each look, with the pairs there are by then, in this order:
//
//   better or worse   two-sided p of the paired t test <= the look's nominal p
//   equivalent        the t interval of level 1 - 2 p, with the same p, lies inside (-margin, margin)
//   undecided         otherwise: wait for the next look
//
// The nominal values are O'Brien and Fleming's for three equally spaced looks and 5% overall (z 3.471, 2.454, 2.004;
// O'Brien and Fleming, Biometrics 35, 1979; Jennison and Turnbull, "Group Sequential Methods", 2000, table 2.3), used
// with t quantiles. They were made for known variances: with t quantiles at 4, 8 and 12 pairs the overall level is 5.3%
// by overall_p(), and a test holds it to that.
//
// The interval of level 1 - 2 p is two one-sided tests of level p (Schuirmann, J. Pharmacokin. Biopharm. 15, 1987). A true
// difference at the margin passes one of them with the chance of a one-sided test over all looks, so "equivalent" is
// wrong in about 5% of such cases as well. A 90% interval at every look would be wrong in up to 9%.
//
// The interval of a result has level 1 - nominal p of its look (a "repeated confidence interval", Jennison and
// Turnbull, JRSS B 51, 1989): it excludes 0 where the verdict is better or worse, and all of them together
// cover the true difference with the overall level, whenever one stops.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/index.h"
#include "core/verdict.h"
#include "study/paired.h"

namespace ddl {

struct Look {
  Index pairs;
  double nominal_p;
};
std::vector<Look> standard_looks();  // 4, 8, 12 pairs with 0.0005, 0.014, 0.045

// Differences are losses of the rule in question minus losses of its control: negative is better.
struct SequentialResult {
  Verdict verdict = Verdict::kUndecided;
  Index look = 0;        // the look that decided, or the last complete one, from 1; 0: none is complete
  Index pairs = 0;       // of that look
  Index next_pairs = 0;  // how many pairs the next look needs; 0: the comparison has ended
  double mean = 0, t = 0, p = 1;  // p is nominal: of this look alone
  double level = 1;               // of the interval: 1 - nominal p of the look
  Interval interval = kEverything;
  Interval equivalence = kEverything;  // level 1 - 2 nominal p of the look: decides equivalence
};

// Uses the first `pairs` differences of each look and none beyond, so that further runs never change a verdict. Throws
// UserError where the looks are none that can be (pairs from 2 and rising, p in (0, 0.5)) or the margin is negative. A
// margin of 0 never ends with equivalence.
SequentialResult decide(std::span<const double> differences, std::span<const Look> looks, double margin);

// The p-value that several looks leave, for procedures that take p-values (Holm's): the chance, without any difference,
// of a significant earlier look, or of a |t| as large as this at this look (the stage-wise order of Tsiatis, Rosner and
// Mehta, Biometrics 40, 1984). By simulation; a nominal p would be too small from the second look on.
double overall_p(const SequentialResult& result, std::span<const Look> looks, Index studies = 200000,
                 std::uint64_t seed = 0);

}  // namespace ddl
