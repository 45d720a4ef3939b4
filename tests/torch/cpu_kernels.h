// The CUDA kernels, run on the CPU.
#pragma once

#include "torch/cuda/kernels.h"

namespace ddl {

const cuda::Kernels& cpu_kernels();

}  // namespace ddl
