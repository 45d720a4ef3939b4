#include "study/sequential.h"

#include <boost/math/distributions/students_t.hpp>
#include <cmath>

#include "core/error.h"
#include "core/function_ref.h"
#include "core/rng.h"

namespace ddl {
namespace {

void check_looks(std::span<const Look> looks) {
  if (looks.empty()) throw UserError("looks: expected at least one, found none");
  Index before = 1;
  for (const Look& look : looks) {
    if (look.pairs <= before)
      throw UserError(
          "looks: expected numbers of pairs from 2 on, each larger than the one before; found {} after {}",
          look.pairs, before);
    if (!(look.nominal_p > 0 && look.nominal_p < 0.5))
      throw UserError("looks: expected a nominal p above 0 and below 0.5, found {}", look.nominal_p);
    before = look.pairs;
  }
}

// |t| from which a look is significant.
std::vector<double> critical_values(std::span<const Look> looks) {
  check_looks(looks);
  std::vector<double> critical;
  for (const Look& look : looks) {
    const boost::math::students_t t(static_cast<double>(look.pairs - 1));
    critical.push_back(boost::math::quantile(boost::math::complement(t, look.nominal_p / 2)));
  }
  return critical;
}

// Calls `visit` with |t| at every look of each study of normal differences around 0.
void simulate_no_difference(std::span<const Look> looks, Index studies, std::uint64_t seed,
                            FunctionRef<void(std::span<const double>)> visit) {
  const Random random(seed, "study.no_difference");
  std::uint64_t draw = 0;
  std::vector<double> sizes_of_t(looks.size());
  for (Index s = 0; s < studies; ++s) {
    double sum = 0, squares = 0;
    Index pairs = 0;
    for (std::size_t k = 0; k < looks.size(); ++k) {
      for (; pairs < looks[k].pairs; ++pairs) {
        const double d = random.normal(draw++);
        sum += d;
        squares += d * d;
      }
      const auto n = static_cast<double>(pairs);
      sizes_of_t[k] = std::abs(sum) / std::sqrt(n * (squares - sum * sum / n) / (n - 1));
    }
    visit(sizes_of_t);
  }
}

// The look, from 0, that is significant first; the number of looks where none is.
Index first_crossing(std::span<const double> sizes_of_t, std::span<const double> critical) {
  std::size_t look = 0;
  while (look < critical.size() && sizes_of_t[look] < critical[look]) ++look;
  return static_cast<Index>(look);
}

}  // namespace

std::vector<Look> standard_looks() { return {{4, 0.0005}, {8, 0.014}, {12, 0.045}}; }

SequentialResult decide(std::span<const double> differences, std::span<const Look> looks, double margin) {
  check_looks(looks);
  if (!(margin >= 0)) throw UserError("margin: expected a number from 0 on, found {}", margin);
  SequentialResult result;
  for (const Look& look : looks) {
    result.next_pairs = look.pairs;
    if (std::ssize(differences) < look.pairs) return result;
    const auto seen = differences.first(static_cast<std::size_t>(look.pairs));
    result.level = 1 - look.nominal_p;
    const PairedResult paired = paired_t(seen, result.level);
    ++result.look;
    result.pairs = look.pairs;
    result.mean = paired.mean;
    result.p = paired.p;
    result.t = paired.p == 1 ? 0 : paired.mean / paired.standard_error;
    result.interval = paired.t;
    result.equivalence = paired_t(seen, 1 - 2 * look.nominal_p).t;
    if (paired.p <= look.nominal_p)
      result.verdict = paired.mean < 0 ? Verdict::kBetter : Verdict::kWorse;
    else if (result.equivalence.inside(-margin, margin))
      result.verdict = Verdict::kEquivalent;
    if (result.verdict != Verdict::kUndecided) break;
  }
  result.next_pairs = 0;
  return result;
}

double overall_p(const SequentialResult& result, std::span<const Look> looks, Index studies,
                 std::uint64_t seed) {
  if (result.look == 0 || result.p == 1) return 1;
  DDL_CHECK(result.look <= std::ssize(looks), "look {} of {}", result.look, looks.size());
  const std::vector<double> critical = critical_values(looks);
  Index as_extreme = 0;
  simulate_no_difference(looks, studies, seed, [&](std::span<const double> sizes_of_t) {
    const Index last = result.look - 1;
    as_extreme += first_crossing(sizes_of_t, critical) < last || sizes_of_t[last] >= std::abs(result.t);
  });
  // The observed study itself counts as one of them, so that no finite simulation claims p = 0.
  return static_cast<double>(as_extreme + 1) / static_cast<double>(studies + 1);
}

}  // namespace ddl
