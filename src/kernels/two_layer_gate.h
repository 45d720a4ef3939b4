// The two-layer gate. hidden = W1 context comes from a GEMM; per token:
//
//   beta = 2 sigmoid(w2 . tanh(hidden) + b2)
#pragma once

#include "core/bf16.h"
#include "core/exec.h"

namespace ddl {

void two_layer_gate_fwd(float* beta_N, const float* hidden_NG, const float* w2_G, const float* b2, Index N,
                        Index G, const Exec& ex);
// Overwrites dhidden_NG (T is float or bf16: it is the input of GEMMs); accumulates dw2_G and db2. scratch:
// two_layer_gate_scratch(G) floats.
template <class T>
void two_layer_gate_bwd(T* dhidden_NG, float* dw2_G, float* db2, const float* dbeta_N, const float* beta_N,
                        const float* hidden_NG, const float* w2_G, float* scratch, Index N, Index G,
                        const Exec& ex);

Index two_layer_gate_scratch(Index G);

}  // namespace ddl
