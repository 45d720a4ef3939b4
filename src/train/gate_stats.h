// What the gates of a model did to a batch, as numbers small enough to keep for every interval. Works for any
// rule that reports a series "gate"; "target" and "readout" add the discrepancy between them.
#pragma once

#include "core/exec.h"
#include "core/record.h"
#include "model/trainable.h"

namespace ddl {

// An array with one object per sublayer:
//   {"sublayer", "kind": "attention" | "mlp", "mean_gate", "histogram": shares of 20 bins over [0, 2]}
// and, for rules that erase, "discrepancy_before": mean |v - r| over tokens and channels, and
// "discrepancy_after": mean |1 - beta| |v - r|, what the write leaves of it.
// Null where the model has no gates. Speaks of the last micro-batch.
Json gate_statistics(const TrainableModel& model, const Exec& ex);

}  // namespace ddl
