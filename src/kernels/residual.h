// The residual stream: one pass over the tokens that finishes a sublayer and prepares the next.
//
// While a token's state X (D planes of C features, C contiguous) is in the first-level cache, the forward
// pass
//   writes   h, the sublayer's output, into X                                (WriteFwd)
//   reads    x_in = sum_d mix_d * X_d, the next sublayer's input             (ReadFwd)
//   norms    context = RMSNorm(x_in), the next sublayer's normalised input
//   branches beta = 2 sigmoid(gate), v = value(...), for the next write      (Branches)
// Each part may be left out, so the same pass is also the plain RMSNorm, the plain compressor, the plain
// rewrite. The backward pass is the mirror image and walks X back to what it was before the write, so no copy
// of X is stored. Derivations: docs/math.md, "The residual pass".
#pragma once

#include "core/bf16.h"
#include "core/exec.h"
#include "kernels/gemm.h"

namespace ddl {

// With the direction k = h / sqrt(|h|^2 + k_eps^2) and the readout r_d = k . X_d:
enum class WriteRule {
  kAdd,        // X_0 += h                              (D = 1)
  kDelta,      // X_d += beta (v_d - r_d) k
  kWriteOnly,  // X_d += beta v_d k                     (the control: no erase term)
};

// The target v_d of the write. u_d = value_w_d . input + value_b_d
enum class ValueBranch {
  kSigmoid,  // v_d = 4 sigmoid(u_d), input x_in        (the released code)
  kBiased,   // v_d = u_d,            input context
  kLinear,   // v_d = u_d without the bias              (the paper's text)
};
inline constexpr float kValueScale = 4.0f;  // of kSigmoid

inline constexpr Index kMaxChannels = 16;  // D
inline constexpr Index kMaxWidth = 8192;   // C: a token's working row lives on the stack

// The two branches that steer the next write. gate_w_C null: the gate is computed elsewhere (two-layer gate).
struct BranchWeights {
  const float* gate_w_C = nullptr;
  const float* gate_b = nullptr;
  ValueBranch value = ValueBranch::kSigmoid;
  const float* value_w_DC = nullptr;  // null: no branches at all (additive rule, final readout)
  const float* value_b_D = nullptr;
  Index channels = 0;  // D of the state that is written
};

template <class T>
struct WriteFwd {
  WriteRule rule = WriteRule::kAdd;
  const T* h_NC = nullptr;
  const float* beta_N = nullptr;
  const float* v_ND = nullptr;
  float k_eps = 1e-5f;
  float* readout_ND = nullptr;  // out, kDelta: r before the write
  float* kscale_N = nullptr;    // out, not kAdd: 1 / sqrt(|h|^2 + k_eps^2)
};

template <class T>
struct ReadFwd {
  const float* mix_DC = nullptr;  // channel compressor; null: x_in = X (D = 1)
  const float* norm_C = nullptr;
  float norm_eps = 1e-5f;
  T* context_NC = nullptr;  // out
  float* rstd_N = nullptr;  // out
  BranchWeights branches = {};
  float* beta_N = nullptr;  // out
  float* v_ND = nullptr;    // out
};

// Either part may be null.
template <class T>
void residual_fwd(float* state_NDC, const WriteFwd<T>* write, const ReadFwd<T>* read, Index N, Index D,
                  Index C, const Exec& ex);

template <class T>
struct ReadBwd {
  const float* mix_DC = nullptr;
  const float* norm_C = nullptr;
  const float* rstd_N = nullptr;
  const float* dcontext_NC = nullptr;
  BranchWeights branches = {};
  const float* beta_N = nullptr;  // saved
  const float* v_ND = nullptr;
  const float* dbeta_N = nullptr;  // from the backward of the write they steered
  const float* dv_ND = nullptr;
  Write dstate_mode = Write::kAccumulate;  // kOverwrite at the top, where no other path reaches the state
  // Accumulated; each is null where its weight is.
  float* dmix_DC = nullptr;
  float* dnorm_C = nullptr;
  float* dgate_w_C = nullptr;
  float* dgate_b = nullptr;
  float* dvalue_w_DC = nullptr;
  float* dvalue_b_D = nullptr;
};

template <class T>
struct WriteBwd {
  WriteRule rule = WriteRule::kAdd;
  const T* h_NC = nullptr;
  const float* beta_N = nullptr;
  const float* v_ND = nullptr;
  const float* readout_ND = nullptr;
  const float* kscale_N = nullptr;
  T* dh_NC = nullptr;        // out
  float* dbeta_N = nullptr;  // out
  float* dv_ND = nullptr;    // out
};

// In: state after the write and before the read, dstate its gradient by all later paths but this read's.
// Out: state before the write, dstate its gradient by the same paths. Either part may be null.
// scratch: residual_bwd_scratch(D, C, channels) floats.
template <class T>
void residual_bwd(float* state_NDC, float* dstate_NDC, const ReadBwd<T>* read, const WriteBwd<T>* write,
                  float* scratch, Index N, Index D, Index C, const Exec& ex);
Index residual_bwd_scratch(Index D, Index C, Index channels);

}  // namespace ddl
