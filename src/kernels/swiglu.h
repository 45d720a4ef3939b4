// The MLP's elementwise middle: hidden = silu(a) * b, where gate_up_N2F holds [a | b] for each token.
// Act is float or bf16; the arithmetic is f32.
#pragma once

#include "core/bf16.h"
#include "core/exec.h"

namespace ddl {

// Overwrites hidden_NF.
template <class Act>
void swiglu_fwd(Act* hidden_NF, const Act* gate_up_N2F, Index N, Index F, const Exec& ex);

// Overwrites dgate_up_N2F = [da | db], which may be gate_up_N2F itself. Where hidden_NF is not null the
// forward output is written again in the same pass (for the weight gradient of the layer after it), which may
// be dhidden_NF itself.
template <class Act>
void swiglu_bwd(Act* dgate_up_N2F, Act* hidden_NF, const Act* dhidden_NF, const Act* gate_up_N2F, Index N,
                Index F, const Exec& ex);

}  // namespace ddl
