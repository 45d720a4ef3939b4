// Token embedding: rows of a table, and the scatter-add that is its backward.
#pragma once

#include <cstdint>

#include "core/bf16.h"
#include "core/exec.h"

namespace ddl {

// x_n = wte[token_n]
// Overwrites x_NC. (X, W) is (float, float), (float, bf16) or (bf16, bf16).
template <class X, class W>
void embedding_fwd(X* x_NC, const W* wte_VC, const std::int32_t* token_N, Index N, Index V, Index C,
                   const Exec& ex);

// dwte[token_n] += dx_n
// Accumulates into dwte_VC, in the order of token_N for any number of threads. Grad is float or bf16.
template <class Grad>
void embedding_bwd(float* dwte_VC, const Grad* dx_NC, const std::int32_t* token_N, Index N, Index V, Index C,
                   const Exec& ex);

}  // namespace ddl
