// The two-layer gate, from hidden_NG = W1 context (a GEMM):  gate = scale sigmoid(w2 . tanh(hidden) + b2).
// Gates and their gradients are one number per token among several: `stride` floats apart.
#pragma once

#include "core/bf16.h"
#include "core/exec.h"

namespace ddl {

void two_layer_gate_fwd(float* gate_N, Index stride, float scale, const float* hidden_NG, const float* w2_G,
                        const float* b2, Index N, Index G, const Exec& ex);
// dhidden overwrites (T: it is the input of the next GEMMs); dw2 and db2 accumulate.
// scratch: two_layer_gate_scratch(G) floats.
template <class T>
void two_layer_gate_bwd(T* dhidden_NG, float* dw2_G, float* db2, const float* dgate_N, const float* gate_N,
                        Index stride, float scale, const float* hidden_NG, const float* w2_G, float* scratch,
                        Index N, Index G, const Exec& ex);
Index two_layer_gate_scratch(Index G);

}  // namespace ddl
