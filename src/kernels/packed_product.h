// Products with a packed matrix (packed_matrix.h), for any number of tokens: y_NO = x_NI w_OI^T.
//
// For a few tokens reading the weights is the only cost that matters, so they are read once for all tokens. Lanes
// are rows, so every output is one chain of sums over the inputs in their order:
//
//   bf16      y = sum_i x_i w_i                                  fused multiply-adds
//   q8, q4    y = sum_b (scale_b step_b) sum_{i in b} c_i n_i    the inner sums on integers, exact
//
// where x_i = step_b n_i in every block b of 32 inputs, step_b = max_{i in b} |x_i| / 32767, n_i to nearest. Sixteen
// bits cost an activation nothing where the products are 16 bits wide anyway, and leave it nearly exact.
//
// So a token's bits depend on its own inputs alone: not on the other tokens, on their number, or on the threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/exec.h"
#include "kernels/packed_matrix.h"

namespace ddl {

// Overwrites y_NO. scratch: packed_product_scratch() bytes, aligned as an Arena's.
void packed_product(float* y_NO, std::byte* scratch, const float* x_NI, const PackedMatrix& w, Index N,
                    const Exec& ex);
Index packed_product_scratch(Index N, Index I);

}  // namespace ddl
