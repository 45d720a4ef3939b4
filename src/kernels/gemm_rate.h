// The machine's GEMM rate, measured: what training and benchmarks compare their speed with.
#pragma once

#include "core/exec.h"

namespace ddl {

// The best GFLOP/s of square products, bf16 or f32 inputs, within about `seconds`.
double measure_gemm_gflops(bool bf16_inputs, double seconds, const Exec& ex);

}  // namespace ddl
