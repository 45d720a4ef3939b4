// Short causal convolutions over tokens, depthwise: the embedding convolution (EC) that makes the expanded
// state from an embedding, and the token compressor (TC) that reads a state of several tokens into one row.
//
// Tap E-1 multiplies the current token, tap E-1-s the token s steps back; before a sequence's first token is
// zero. Every sequence has T tokens; N is a multiple of T.
//
// Decoding computes a sequence one span at a time. The two *_span functions are given the input rows of the
// tokens one, two, ... steps before the span: as many as there are, at most E-1. Their results are, bit for
// bit, those of the whole sequence at once.
#pragma once

#include <span>

#include "core/exec.h"
#include "kernels/gemm.h"

namespace ddl {

inline constexpr Index kMaxTaps = 64;              // E
using RowsBefore = std::span<const float* const>;  // the nearest first

// X_0 = x 1^T
//   forward     state_d = x                    for every channel d
//   backward    dx      = sum_d dstate_d
void repeat_fwd(float* state_NDC, const float* x_NC, Index N, Index D, Index C, const Exec& ex);
void repeat_bwd(float* dx_NC, const float* dstate_NDC, Index N, Index D, Index C, const Exec& ex);

// EC:
//   state_{t,d} = sum_s w_{E-1-s,d} x_{t-s}
void embedding_conv_fwd(float* state_NDC, const float* x_NC, const float* w_EDC, Index N, Index T, Index D,
                        Index C, Index E, const Exec& ex);
void embedding_conv_span(float* state_nDC, const float* x_nC, RowsBefore before, const float* w_EDC, Index n,
                         Index D, Index C, Index E, const Exec& ex);
//   dx_t          = sum_{d,s} w_{E-1-s,d} dstate_{t+s,d}
//   dw_{E-1-s,d} += sum_t dstate_{t,d} x_{t-s}
// scratch: short_conv_scratch(D, C, E) floats.
void embedding_conv_bwd(float* dx_NC, float* dw_EDC, const float* dstate_NDC, const float* x_NC,
                        const float* w_EDC, float* scratch, Index N, Index T, Index D, Index C, Index E,
                        const Exec& ex);

// TC:
//   x_t = sum_d read_d sum_s w_{E-1-s,d} state_{t-s,d}
void token_compress_fwd(float* x_NC, const float* state_NDC, const float* w_EDC, const float* read_D, Index N,
                        Index T, Index D, Index C, Index E, const Exec& ex);
void token_compress_span(float* x_nC, const float* state_nDC, RowsBefore before, const float* w_EDC,
                         const float* read_D, Index n, Index D, Index C, Index E, const Exec& ex);
// With S_{e,d} = sum_t dx_t state_{t-s,d} and s = E-1-e:
//   dstate_{t,d}  = read_d sum_s w_{E-1-s,d} dx_{t+s}        (or +=)
//   dw_{e,d}     += read_d S_{e,d}
//   dread_d      += sum_{e,c} w_{e,d,c} S_{e,d,c}
// scratch: short_conv_scratch(D, C, E) floats.
void token_compress_bwd(float* dstate_NDC, Write dstate_mode, float* dw_EDC, float* dread_D,
                        const float* dx_NC, const float* state_NDC, const float* w_EDC, const float* read_D,
                        float* scratch, Index N, Index T, Index D, Index C, Index E, const Exec& ex);

Index short_conv_scratch(Index D, Index C, Index E);

}  // namespace ddl
