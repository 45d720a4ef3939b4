// Causal multi-head attention in blocks: scores exist for one block of queries and keys at a time, blocks
// that lie wholly in the future are never computed, and backward recomputes what forward did not keep.
//
//   s_ij  = q_i . k_j / sqrt(K)
//   lse_i = log sum_{j<=i} exp(s_ij)
//   p_ij  = exp(s_ij - lse_i)              for j <= i
//   o_i   = sum_{j<=i} p_ij v_j
//
// Act is float or bf16. Scores, statistics and sums are f32; with bf16 the weights p (and in backward ds) are
// rounded to bf16 before they are multiplied. A sequence's results depend on nothing else in its batch, and
// not on the number of threads.
#pragma once

#include <cstddef>

#include "core/bf16.h"
#include "core/exec.h"

namespace ddl {

// Rows n = b*T + t of H heads of K numbers, ld apart: element (n, h, k) is data[n * ld + h * K + k]. So q, k
// and v can be three tensors or parts of the rows of one.
template <class Act>
struct HeadRows {
  Act* data;
  Index ld;
};

// Overwrites o and lse_NH (kept for backward).
template <class Act>
void attention_fwd(HeadRows<Act> o, float* lse_NH, std::byte* scratch, HeadRows<const Act> q,
                   HeadRows<const Act> k, HeadRows<const Act> v, Index B, Index T, Index H, Index K,
                   const Exec& ex);

// Overwrites dq, dk and dv; none of them may be an input.
template <class Act>
void attention_bwd(HeadRows<Act> dq, HeadRows<Act> dk, HeadRows<Act> dv, std::byte* scratch,
                   HeadRows<const Act> dout, HeadRows<const Act> o, const float* lse_NH,
                   HeadRows<const Act> q, HeadRows<const Act> k, HeadRows<const Act> v, Index B, Index T,
                   Index H, Index K, const Exec& ex);

// Bytes of scratch (aligned to kCacheLineBytes) that the functions above need with so many threads.
std::size_t attention_scratch_bytes(Index T, Index K, int threads);

}  // namespace ddl
