// Rotary positions and the RMSNorm of queries and keys, in one pass between the qkv projection and attention.
// Per token qkv_N3C holds [q | k | v], each H heads of K features, C = H*K. Act is float or bf16; arithmetic,
// statistics and weights are f32.
#pragma once

#include <cstdint>

#include "core/bf16.h"
#include "core/exec.h"

namespace ddl {

inline constexpr float kQkNormEps = 1e-5f;

// Row t holds cos(t f_i) for i < K/2, then sin(t f_i), with f_i = base^(-2i/K). K is even.
void fill_rope_table(float* rope_TK, Index T, Index K, double base = 10000);

// Overwrites q_NC, k_NC and rstd_N2H (per token: H of q, then H of k; kept for backward). Token n stands at
// position_N[n], or at n % T where position_N is null; rope_TK must reach that far.
template <class Act>
void rope_qknorm_fwd(Act* q_NC, Act* k_NC, float* rstd_N2H, const Act* qkv_N3C, const float* q_w_K,
                     const float* k_w_K, const float* rope_TK, const std::int32_t* position_N, Index N,
                     Index T, Index H, Index K, const Exec& ex);

// Overwrites the q and k parts of dqkv_N3C and leaves its v part alone (attention's backward writes dv
// there); accumulates dq_w_K and dk_w_K. Rows of dq and dk lie ld_dq and ld_dk apart and may be the q and k
// parts of dqkv_N3C themselves. scratch: rope_qknorm_scratch_floats(K).
template <class Act>
void rope_qknorm_bwd(Act* dqkv_N3C, float* dq_w_K, float* dk_w_K, float* scratch, const Act* dq, Index ld_dq,
                     const Act* dk, Index ld_dk, const Act* qkv_N3C, const float* rstd_N2H,
                     const float* q_w_K, const float* k_w_K, const float* rope_TK,
                     const std::int32_t* position_N, Index N, Index T, Index H, Index K, const Exec& ex);

Index rope_qknorm_scratch_floats(Index K);

}  // namespace ddl
