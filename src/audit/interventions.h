// What the loss becomes when one thing is changed at one sublayer and everything after it is computed anew.
#pragma once

#include <string>
#include <vector>

#include "audit/collector.h"
#include "core/exec.h"
#include "core/function_ref.h"
#include "model/probe.h"

namespace ddl {

// A change that makes sense for the model's rule, at every sublayer.
struct Change {
  std::string name;               // "gate = 0"
  std::vector<Replacement> at_S;  // by sublayer
};
// Means are those over all tokens that the collector saw.
//   no erase                   where the rule reads before it writes: as if it had read nothing
//   gate = 0, = 1, = mean      of every gate of the write
//   target = mean              channel by channel
//   output = 0, = mean         of rules without such a gate: the sublayer's output h, feature by feature
std::vector<Change> possible_changes(Probe& probe, const Collector& seen);

struct Effect {
  double loss_change = 0;  // mean over tokens, in nats; positive: worse
  double error = 0;        // standard error over windows; 0 with a single one
};

// A batch of the probe's shape of which the first `rows` windows count, and every token's loss without a change.
struct InterventionBatch {
  BatchView tokens;
  Index rows = 0;
  const float* loss_N = nullptr;
};
Effect effect_of(const Replacement& change, Probe& probe, const std::vector<InterventionBatch>& batches,
                 const Exec& ex);

}  // namespace ddl
