// Attention over depth: a sublayer reads a mixture of what the token's earlier sublayers gave.
//
// A token's sources are V_0, its embedding, and V_1 .. V_{I-1}, outputs of sublayers or sums of some of them. The
// forward pass, while a token's sources are in the cache:
//   writes    where sources are kept or summed: the newest V = h, or V += h         (DepthWrite)
//   scores    rho_i = 1 / sqrt(mean(V_i^2) + eps),  alpha = softmax_i(rho_i q . V_i)
//   reads     x_in = sum_i alpha_i V_i
//   norms     context = RMSNorm(x_in)
// The backward pass is the mirror image. Derivation: docs/math.md, "Attention over depth".
#pragma once

#include "core/bf16.h"
#include "core/exec.h"
#include "kernels/gemm.h"

namespace ddl {

inline constexpr Index kMaxSources = 2048;  // I: a token's weights live on the stack

// V is the type of V_1 .. V_{I-1}.
template <class V>
struct DepthSources {
  Index count = 1;                      // I
  const float* first_NC = nullptr;      // V_0
  const V* const* others_NC = nullptr;  // V_1 .. V_{I-1}
  const float* const* rho_N = nullptr;  // of V_0 .. V_{I-1}
  const float* q_C = nullptr;           // not read where I = 1
  const float* norm_C = nullptr;        // of the RMSNorm
  float norm_eps = 1e-5f;
  float eps = 1e-5f;  // of rho
};

// What enters the newest source, which must be the last of DepthSources.
template <class T, class V>
struct DepthWrite {
  const T* h_NC = nullptr;
  V* newest_NC = nullptr;
  Write mode = Write::kOverwrite;
};

template <class T>
struct DepthRead {
  float* newest_rho_N = nullptr;  // out: rho_{I-1}
  float* alpha_NI = nullptr;      // out
  T* context_NC = nullptr;        // out
  float* rstd_N = nullptr;        // out
};

// write may be null: the newest source is there already.
template <class T, class V>
void depth_attention_fwd(const DepthRead<T>& read, const DepthWrite<T, V>* write,
                         const DepthSources<V>& sources, Index N, Index C, const Exec& ex);

// With I = 1 only dfirst is given: dfirst += the norm's gradient (or =), and no query is involved.
template <class T, class V>
struct DepthReadBwd {
  const float* alpha_NI = nullptr;
  const float* rstd_N = nullptr;
  const float* dcontext_NC = nullptr;
  float* dfirst_NC = nullptr;          // gradient of V_0
  float* const* dothers_NC = nullptr;  // of V_1 .. V_{I-1}
  // Of dfirst and dothers; kOverwrite at the top, where they hold nothing yet
  Write mode = Write::kAccumulate;
  // The newest source's gradient, by this read and all later ones, goes to dh_NC alone; its entry of dothers_NC
  // may be null at the top. Where the source is a sum with earlier terms, newest_NC is given: then the gradient
  // goes to both, and h is taken out of the sum again.
  T* dh_NC = nullptr;
  V* newest_NC = nullptr;
  const T* h_NC = nullptr;
  float* dq_C = nullptr;     // accumulated
  float* dnorm_C = nullptr;  // accumulated
};

template <class T, class V>
void depth_attention_bwd(const DepthReadBwd<T, V>& read, const DepthSources<V>& sources, float* scratch,
                         Index N, Index C, const Exec& ex);
Index depth_attention_scratch(Index C);

}  // namespace ddl
