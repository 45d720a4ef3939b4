// AdamW over a contiguous range of parameters, and the global norm that its gradient scaling needs.
#pragma once

#include "core/bf16.h"
#include "core/exec.h"

namespace ddl {

struct AdamW {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0;  // decoupled: p loses lr * weight_decay * p
  double grad_scale = 1;    // multiplies g first (clipping, averaging)
  Index step = 1;           // counts from 1, for the bias correction
};

// Updates p_n, m_n and v_n in place; overwrites copy_n (the bf16 copy that GEMMs read) where it is not null;
// sets g_n to zero in the same pass where zero_grad.
void adamw_step(float* p_n, float* m_n, float* v_n, bf16* copy_n, float* g_n, bool zero_grad,
                const AdamW& options, Index n, const Exec& ex);

// sum_i x_i^2, in f32 within short runs and in f64 over the runs, in an order that depends on n alone.
double sum_of_squares(const float* x_n, Index n, const Exec& ex);

}  // namespace ddl
