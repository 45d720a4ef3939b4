#include "study/compute_gain.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/error.h"

namespace ddl {
namespace {

// Rising compute, strictly falling loss.
std::vector<ComputeLoss> falling_curve(std::span<const ComputeLoss> runs) {
  std::vector<ComputeLoss> sorted;
  for (const ComputeLoss& run : runs) {
    DDL_CHECK(run.compute > 0, "compute {}", run.compute);
    if (std::isfinite(run.loss)) sorted.push_back(run);
  }
  std::sort(sorted.begin(), sorted.end(), [](const ComputeLoss& a, const ComputeLoss& b) {
    return a.compute != b.compute ? a.compute < b.compute : a.loss < b.loss;
  });
  std::vector<ComputeLoss> curve;
  for (const ComputeLoss& run : sorted)
    if (curve.empty() || run.loss < curve.back().loss) curve.push_back(run);
  return curve;
}

}  // namespace

ComputeGain compute_gain(std::span<const ComputeLoss> baseline, ComputeLoss rule) {
  DDL_CHECK(rule.compute > 0, "compute {}", rule.compute);
  const std::vector<ComputeLoss> curve = falling_curve(baseline);
  if (curve.empty()) return {1, GainBound::kUnknown};
  if (!(rule.loss <= curve.front().loss)) return {curve.front().compute / rule.compute, GainBound::kAtMost};
  if (rule.loss < curve.back().loss) return {curve.back().compute / rule.compute, GainBound::kAtLeast};
  const auto reached =
      std::find_if(curve.begin(), curve.end(), [&](const ComputeLoss& run) { return run.loss <= rule.loss; });
  if (reached == curve.begin()) return {reached->compute / rule.compute, GainBound::kExact};
  const ComputeLoss &from = *(reached - 1), &to = *reached;
  const double way = (from.loss - rule.loss) / (from.loss - to.loss);
  const double log_compute = std::log(from.compute) + way * std::log(to.compute / from.compute);
  return {std::exp(log_compute) / rule.compute, GainBound::kExact};
}

}  // namespace ddl
