// Writes that act on each feature alone, on a state x of one channel:
//   decay      x' = a x + b x0 + h                   h is the sublayer's output, x0 the embedding
//   highway    x' = x + gate * (h - x)               gate = sigmoid(w * c + bias) per feature, c = RMSNorm(x)
// and the norm in front of the next sublayer, in the same pass: context' = RMSNorm(x').
//
// x in front of every write is kept by the caller: backward reads it instead of walking back, because dividing by
// a, or by 1 - gate, would amplify rounding. Derivations: docs/math.md, "Decay with the embedding" and "Highway".
#pragma once

#include "core/bf16.h"
#include "core/exec.h"
#include "kernels/gemm.h"

namespace ddl {

// The norm of what was written. All are of the next sublayer.
template <class T>
struct NormFwd {
  const float* norm_C = nullptr;
  float norm_eps = 1e-5f;
  T* context_NC = nullptr;  // out
  float* rstd_N = nullptr;  // out
};
struct NormBwd {
  const float* norm_C = nullptr;
  const float* rstd_N = nullptr;
  const float* dcontext_NC = nullptr;
  float* dnorm_C = nullptr;  // accumulated
};

// The norm alone.
template <class T>
void norm_fwd(const NormFwd<T>& norm, const float* x_NC, Index N, Index C, const Exec& ex);
// dx = dstate + more + the norm's gradient; more may be null. Overwrites dx_NC, which may be dstate_NC.
void norm_bwd(float* dx_NC, const float* dstate_NC, const float* more_NC, const NormBwd& norm,
              const float* x_NC, float* scratch, Index N, Index C, const Exec& ex);

template <class T>
struct DecayFwd {
  float a = 1, b = 0;
  const float* x_NC = nullptr;
  const float* x0_NC = nullptr;
  const T* h_NC = nullptr;
  float* next_NC = nullptr;  // out: x'; may be x_NC
};
template <class T>
void decay_fwd(const DecayFwd<T>& write, const NormFwd<T>& norm, Index N, Index C, const Exec& ex);

// dstate on entry: the gradient of x' by all later paths but this norm's; on exit: that of x by the same paths.
// With Write::kOverwrite there are no such paths yet, and what dstate and dx0 hold on entry is not read.
template <class T>
struct DecayBwd {
  float a = 1, b = 0;
  const float* next_NC = nullptr;  // x'
  const float* x_NC = nullptr;
  const float* x0_NC = nullptr;
  T* dh_NC = nullptr;  // out
  float* dstate_NC = nullptr;
  float* dx0_NC = nullptr;  // the writes' gradient of the embedding
  Write mode = Write::kAccumulate;
  float *da = nullptr, *db = nullptr;  // accumulated
};
template <class T>
void decay_bwd(const DecayBwd<T>& write, const NormBwd& norm, float* scratch, Index N, Index C,
               const Exec& ex);

template <class T>
struct HighwayFwd {
  const float* w_C = nullptr;
  const float* bias_C = nullptr;
  const float* x_NC = nullptr;
  const float* norm_C = nullptr;  // of the norm that gave c from x
  const float* rstd_N = nullptr;  // the same; may be the next norm's
  const T* h_NC = nullptr;
  float* next_NC = nullptr;      // out: x'; may be x_NC
  float* mean_gate_N = nullptr;  // out
};
template <class T>
void highway_fwd(const HighwayFwd<T>& write, const NormFwd<T>& norm, Index N, Index C, const Exec& ex);

// dstate and mode as in DecayBwd; the gate's path through c = RMSNorm(x) is part of dstate on exit.
template <class T>
struct HighwayBwd {
  const float* w_C = nullptr;
  const float* bias_C = nullptr;
  const float* next_NC = nullptr;
  const float* x_NC = nullptr;
  const float* norm_C = nullptr;
  const float* rstd_N = nullptr;
  const T* h_NC = nullptr;
  T* dh_NC = nullptr;  // out
  float* dstate_NC = nullptr;
  Write mode = Write::kAccumulate;
  float *dw_C = nullptr, *dbias_C = nullptr, *dnorm_C = nullptr;  // accumulated
};
template <class T>
void highway_bwd(const HighwayBwd<T>& write, const NormBwd& norm, float* scratch, Index N, Index C,
                 const Exec& ex);

// Floats, for any of the backward passes.
Index elementwise_residual_scratch(Index C);

}  // namespace ddl
