// The floor of a training step: the time of its matrix multiplications alone, called directly one after
// another.
#pragma once

#include "core/exec.h"
#include "model/trainable.h"

namespace ddl {

// Seconds for one step (forward and backward) of this shape, best of `rounds`. The products of attention are
// counted over the unmasked half.
double measure_step_floor(const ModelConfig& config, BatchShape shape, int rounds, const Exec& ex);

}  // namespace ddl
