// The compute-equivalent gain: how many times the compute of a rule's run the baseline needs to reach the same loss.
//
//   gain = C_baseline(loss) / compute        C_baseline: the baseline's curve, inverted
//
// The curve is made of the baseline's runs that were better than every run with less compute; between two of them log
// compute is linear in the loss. Beyond its ends nothing is extrapolated: the result is then a bound.
#pragma once

#include <span>

namespace ddl {

struct ComputeLoss {
  double compute;  // FLOPs, seconds or tokens: the same unit throughout
  double loss;
};

enum class GainBound {
  kExact,
  kAtLeast,  // the loss is below the whole curve: more than the baseline's largest run would be needed
  kAtMost,   // the loss is above the whole curve: the baseline's smallest run is already better
  kUnknown,  // the baseline has no finite loss
};
struct ComputeGain {
  double gain = 1;
  GainBound bound = GainBound::kUnknown;
};

// Baseline runs in any order; those that diverged are left out. A rule that diverged has a loss above every curve.
ComputeGain compute_gain(std::span<const ComputeLoss> baseline, ComputeLoss rule);

}  // namespace ddl
