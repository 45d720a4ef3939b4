// A linear layer for a few tokens. A GEMM library is built for tall inputs; with one to a handful of tokens
// the weights are the only traffic that matters, so this kernel streams them once for all tokens and leaves
// everything else in registers and the first-level cache.
#pragma once

#include "core/bf16.h"
#include "core/exec.h"

namespace ddl {

// y_NO = x_NI w_OI^T
// Overwrites y_NO. (T, Out) is (float, float), (bf16, float) or (bf16, bf16); sums are f32. Any N works.
// A token's result depends neither on the other tokens nor on the number of threads.
template <class T, class Out>
void gemv(Out* y_NO, const T* x_NI, const T* w_OI, Index N, Index O, Index I, const Exec& ex);

// The largest number of tokens for which gemv() is not slower than a GEMM. Measured at the paper's
// small shapes, f32, on a busy machine: 1.2 to 1.9 times as fast for 2 to 8 tokens, about equal at 1 and 16.
inline constexpr Index kGemvTokens = 16;

// Up to kGemvGroup tokens share a pass over the weights, which computes gemv_rows() rows at once. That makes
// twelve sums at most, because the smallest vector machines have sixteen registers.
inline constexpr Index kGemvGroup = 4;
constexpr Index gemv_rows(Index tokens) { return tokens == 1 ? 6 : 12 / tokens; }

}  // namespace ddl
