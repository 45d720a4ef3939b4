// What a rule says about the tokens of a batch (TokenSeries: gates, targets, mixing weights, ...), as numbers small
// enough to keep for every interval. Works for any rule; its series are known by name, role and range alone.
#pragma once

#include <string>

#include "core/exec.h"
#include "core/record.h"
#include "model/trainable.h"

namespace ddl {

// An array with one object per sublayer:
//   {"sublayer", "kind": "attention" | "mlp", "series": {NAME: {"mean", "deviation", ...}, ...}}
// mean and standard deviation are over tokens and the series' numbers per token. Where a token has several, "each" has
// the mean of each. Where the range is known, "range" is [low, high] and "histogram" the shares of 20 bins over it.
//
// Rules with one gate, a target and a readout (SeriesRole) also have "discrepancy_before": mean |target - readout|, and
// "discrepancy_after": mean |1 - gate| |target - readout|, what the write leaves of it.
// Null where the rule has no series. Speaks of the last micro-batch.
Json series_statistics(const TrainableModel& model, const Exec& ex);

// The same as text: for every series a heading and a row per sublayer, with a bar where the range is known.
std::string series_table(const Json& sublayers);

}  // namespace ddl
