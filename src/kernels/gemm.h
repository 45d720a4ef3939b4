// The GEMM wrapper: every matrix multiplication of the model is a call of gemm(), and only gemm.cc knows the
// library behind it (oneDNN). Matrices are row-major; `ld` is the distance between rows. Inputs are both f32
// or both bf16; sums are f32; the output is f32 or bf16.
#pragma once

#include <algorithm>

#include "core/bf16.h"
#include "core/exec.h"

namespace ddl {

enum class Write { kOverwrite, kAccumulate };
enum class Op { kNone, kTranspose };

template <class T>
struct Matrix {
  const T* data;
  Index ld;
  Op op = Op::kNone;
};

// c_MN  = op(a)_MK op(b)_KN        kOverwrite
// c_MN += op(a)_MK op(b)_KN        kAccumulate
// T is float or bf16. Out is float, or bf16 with T = bf16 and kOverwrite.
template <class T, class Out>
void gemm(Out* c, Index ldc, Write mode, Matrix<T> a, Matrix<T> b, Index M, Index N, Index K, const Exec& ex);

// The three products of a linear layer with weight w_OI (O outputs, I inputs), all operands dense.
//   forward            y_NO   = x_NI w_OI^T
//   input gradient     dx_NI  = dy_NO w_OI        (or +=)
//   weight gradient    dw_OI += dy_NO^T x_NI
template <class T, class Out>
void linear_fwd(Out* y_NO, const T* x_NI, const T* w_OI, Index N, Index O, Index I, const Exec& ex) {
  gemm<T, Out>(y_NO, O, Write::kOverwrite, {x_NI, I}, {w_OI, I, Op::kTranspose}, N, O, I, ex);
}
template <class T, class Out>
void linear_bwd_input(Out* dx_NI, Write mode, const T* dy_NO, const T* w_OI, Index N, Index O, Index I,
                      const Exec& ex) {
  gemm<T, Out>(dx_NI, I, mode, {dy_NO, O}, {w_OI, I}, N, I, O, ex);
}
template <class T>
void linear_bwd_weight(float* dw_OI, const T* dy_NO, const T* x_NI, Index N, Index O, Index I,
                       const Exec& ex) {
  gemm<T, float>(dw_OI, I, Write::kAccumulate, {dy_NO, O, Op::kTranspose}, {x_NI, I}, O, I, N, ex);
}

// linear_fwd as products of 264 rows, the last of a multiple of 24. A row's bits then depend on that row and the
// weights alone, not on the other rows, their number, its place among them, or the threads. (The library's bits
// depend on all four: docs/numerics.md.) x_NI and y_NO must hold padded_rows(N) rows; rows from N on are computed
// as well, from whatever they hold.
inline constexpr Index kTileRows = 24;  // a multiple of the library's tiles
// Each block packs its weights anew, so large blocks are faster; from about 280 rows on oneDNN may change its algorithm.
inline constexpr Index kBlockRows = 264;
inline constexpr Index kBlockOutputs = 384;
constexpr Index padded_rows(Index N) { return round_up(N, kTileRows); }
template <class T, class Out>
void linear_blocks(Out* y_NO, const T* x_NI, const T* w_OI, Index N, Index O, Index I, const Exec& ex) {
  const Index columns = ceil_div(O, kBlockOutputs);
  // Blocks with the same weights follow one another, so that the weights are in the cache.
  const Index rows = ceil_div(N, kBlockRows);
  parallel_for(columns * rows, ex, [&](Index block) {
    const Index o = block / rows * kBlockOutputs, n = block % rows * kBlockRows;
    gemm<T, Out>(y_NO + n * O + o, O, Write::kOverwrite, {x_NI + n * I, I}, {w_OI + o * I, I, Op::kTranspose},
                 std::min(kBlockRows, padded_rows(N) - n), std::min(kBlockOutputs, O - o), I, Exec{});
  });
}

}  // namespace ddl
