// The residual stream: one pass over the tokens that finishes a sublayer and prepares the next.
//
// While a token's state X (D planes of C features, C contiguous) is in the first-level cache, the forward pass
//   writes    X_d += coef_d h,  h is the sublayer's output              (WriteFwd)
//   reads     x_in = sum_d mix_d * X_d,  the next sublayer's input      (ReadFwd)
//   norms     context = RMSNorm(x_in),  its normalised input
//   steers    numbers that the next write needs, such as a gate         (Branch)
// Each part may be left out, so the same pass is also the plain RMSNorm, the plain compressor, the plain write.
// The backward pass is the mirror image. It walks X back to what it was before the write, so that no copy of X
// is stored, or takes stored copies where a rule asks for them. Derivations: docs/math.md, "The residual pass".
#pragma once

#include <span>

#include "core/bf16.h"
#include "core/exec.h"
#include "kernels/gemm.h"

namespace ddl {

inline constexpr Index kMaxChannels = 16;  // D
inline constexpr Index kMaxWidth = 8192;   // C: a token's working row lives on the stack
inline constexpr Index kMaxBranchRows = 32;

// How a rule makes coef_d of X_d += coef_d h from what it knows about one token. The pass calls it once per
// token, between its sweeps over the features, so it is plain scalar code.
//
// With A_d = h . G_d, where G_d is the gradient of the new X_d, and coef_d a function of |h|^2, of its own h . X_d
// and of the steering numbers:
//   dsteer_j = sum_d A_d  d coef_d / d steer_j
//   dX_d     = G_d - erase_d h                                 erase_d = - A_d  d coef_d / d (h . X_d)
//   dh       = sum_d (coef_d G_d - erase_d X_d) - along h      along   = - 2 sum_d A_d  d coef_d / d |h|^2
class Coefficients {
 public:
  virtual ~Coefficients() = default;

  virtual bool reads_state() const { return false; }   // whether it needs h . X_d
  virtual bool reads_h_norm() const { return false; }  // whether it needs |h|^2
  virtual Index saved_per_token(Index D) const = 0;    // floats that forward leaves for backward

  struct Forward {
    Index D = 0, C = 0;
    const float* steer = nullptr;
    float h_square = 0;                // |h|^2
    const float* h_dot_X_D = nullptr;  // before the write
    float* saved = nullptr;            // out
    float* coef_D = nullptr;           // out
  };
  virtual void forward(const Forward& token) const = 0;

  struct Backward {
    Index D = 0, C = 0;
    const float* steer = nullptr;
    const float* saved = nullptr;
    const float* h_dot_G_D = nullptr;
    float* dsteer = nullptr;  // out, and so are the others
    float* coef_D = nullptr;
    float* erase_D = nullptr;
    float along = 0;
  };
  virtual void backward(Backward& token) const = 0;
};

// A few numbers per token that steer its next write: steer_r = scale act(w_r . input + b_r), r < rows.
enum class BranchInput { kContext, kUnnormed, kNone };  // RMSNorm(x_in), x_in, or nothing: then b alone
enum class Activation { kIdentity, kSigmoid, kTanh };
struct Branch {
  Index first = 0, rows = 0;  // which of the token's steering numbers it gives
  BranchInput input = BranchInput::kContext;
  Activation activation = Activation::kIdentity;
  float scale = 1;
  const float* w_RC = nullptr;  // null with kNone
  const float* b_R = nullptr;   // null: no bias
  float* dw_RC = nullptr;       // backward: accumulated
  float* db_R = nullptr;
};

template <class T>
struct WriteFwd {
  const Coefficients* coefficients = nullptr;  // null: X_0 += h  (D = 1)
  const T* h_NC = nullptr;
  const float* steer_NR = nullptr;
  Index steer_stride = 0;     // R
  float* saved_NQ = nullptr;  // out; Q = coefficients->saved_per_token(D)
};

template <class T>
struct ReadFwd {
  const float* mix_DC = nullptr;  // channel compressor; null: x_in = X (D = 1)
  const float* norm_C = nullptr;
  float norm_eps = 1e-5f;
  T* context_NC = nullptr;  // out
  float* rstd_N = nullptr;  // out
  std::span<const Branch> branches = {};
  float* steer_NR = nullptr;  // out
  Index steer_stride = 0;
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
  std::span<const Branch> branches = {};
  const float* steer_NR = nullptr;   // saved
  const float* dsteer_NR = nullptr;  // from the backward pass of the write they steered
  Index steer_stride = 0;
  Write dstate_mode = Write::kAccumulate;  // kOverwrite at the top, where no other path reaches the state
  float* dmix_DC = nullptr;                // accumulated
  float* dnorm_C = nullptr;                // accumulated
};

template <class T>
struct WriteBwd {
  const Coefficients* coefficients = nullptr;
  const T* h_NC = nullptr;
  const float* steer_NR = nullptr;
  Index steer_stride = 0;
  const float* saved_NQ = nullptr;
  // The state before the write; null, and for X_0 += h: it is walked back
  const float* stored_state_NDC = nullptr;
  T* dh_NC = nullptr;          // out
  float* dsteer_NR = nullptr;  // out
};

// In: state after the write and before the read, dstate its gradient by all later paths but this read's.
// Out: state before the write, dstate its gradient by the same paths. Either part may be null.
// scratch: residual_bwd_scratch(D, C, R) floats, R the steering numbers of the branches in `read`.
template <class T>
void residual_bwd(float* state_NDC, float* dstate_NDC, const ReadBwd<T>* read, const WriteBwd<T>* write,
                  float* scratch, Index N, Index D, Index C, const Exec& ex);
Index residual_bwd_scratch(Index D, Index C, Index steering_numbers);

}  // namespace ddl
