// The end of the model for a chunk of tokens: softmax cross-entropy and its gradient.
//
//   z_nv       = logit_scale logits_nv
//   loss_n     = logsumexp_v z_nv - z_{n,target(n)}
//   dlogits_nv = grad_scale logit_scale (softmax(z_n)_v - [v = target(n)])
//
// dlogits is the gradient of grad_scale sum_n loss_n.
//
// Any finite logits work: nothing larger than exp(0) is ever formed.
#pragma once

#include <cstdint>

#include "core/bf16.h"
#include "core/exec.h"

namespace ddl {

// Overwrites loss_N and, where it is not null, correct_N (1 where no logit is larger than the target's). Rows
// with a negative target are ignored: 0 in both. logit_scale > 0.
void softmax_xent_fwd(float* loss_N, std::uint8_t* correct_N, const float* logits_NV,
                      const std::int32_t* target_N, float logit_scale, Index N, Index V, const Exec& ex);

// All of a row's log-probabilities in two numbers: log p_v = scale (x_v - largest) - log_sum.
struct SoftmaxStats {
  float largest = 0;   // logit
  double log_sum = 0;  // log sum_v exp(scale (x_v - largest))
};
void softmax_stats(SoftmaxStats* stats_N, const float* logits_NV, float logit_scale, Index N, Index V,
                   const Exec& ex);

// The same as softmax_xent_fwd, and overwrites dlogits_NV (rows that are ignored get 0). Grad is float, where
// dlogits_NV may be logits_NV itself, or bf16.
template <class Grad>
void softmax_xent_fwd_bwd(Grad* dlogits_NV, float* loss_N, std::uint8_t* correct_N, const float* logits_NV,
                          const std::int32_t* target_N, float logit_scale, float grad_scale, Index N, Index V,
                          const Exec& ex);

}  // namespace ddl
