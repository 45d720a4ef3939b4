// The channel compressor as the released code learns it: a convolution along the channels with one kernel of E
// taps per feature, padded to the same length, and a read vector. Both are linear in the state, so they fold
// into the mix that the residual pass takes, one weight per feature and channel, and its gradient unfolds:
//
//   x_c    = sum_j read_j sum_m w_mc X_{j-p+m},c = sum_d mix_dc X_dc        p = floor((E-1)/2), the left pad
//   mix_dc = sum_j read_j w_mc                                            m = d - j + p, where it is in 0..E-1
//   dw_mc   += sum_j read_j dmix_dc                                       d = m + j - p
//   dread_j += sum_m sum_c w_mc dmix_dc                                   d = m + j - p
#pragma once

#include <algorithm>

#include "core/index.h"

namespace ddl {

inline Index channel_conv_pad(Index E) { return (E - 1) / 2; }

inline void channel_conv_fold(float* mix_DC, const float* w_EC, const float* read_D, Index D, Index C,
                              Index E) {
  for (Index d = 0; d < D; ++d) {
    float* mix_C = mix_DC + d * C;
    std::fill_n(mix_C, C, 0.0f);
    for (Index j = 0; j < D; ++j) {
      const Index m = d - j + channel_conv_pad(E);
      if (m < 0 || m >= E) continue;
      for (Index c = 0; c < C; ++c) mix_C[c] += read_D[j] * w_EC[m * C + c];
    }
  }
}

// Accumulates both.
inline void channel_conv_unfold_gradient(float* dw_EC, float* dread_D, const float* dmix_DC,
                                         const float* w_EC, const float* read_D, Index D, Index C, Index E) {
  for (Index j = 0; j < D; ++j) {
    double dread = 0;
    for (Index m = 0; m < E; ++m) {
      const Index d = m + j - channel_conv_pad(E);
      if (d < 0 || d >= D) continue;
      const float *dmix_C = dmix_DC + d * C, *w_C = w_EC + m * C;
      for (Index c = 0; c < C; ++c) {
        dw_EC[m * C + c] += read_D[j] * dmix_C[c];
        dread += double{w_C[c]} * double{dmix_C[c]};
      }
    }
    dread_D[j] += static_cast<float>(dread);
  }
}

}  // namespace ddl
