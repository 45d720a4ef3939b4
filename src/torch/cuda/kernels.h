// The CUDA kernels behind an interface, so that the engine's glue needs neither nvcc nor a GPU: on a GPU they are
// kernels.cu, in tests the same text on the CPU.
#pragma once

#include "torch/cuda/arguments.h"

namespace ddl::cuda {

using Stream = void*;  // a cudaStream_t; tests have none

class Kernels {
 public:
  virtual ~Kernels() = default;
  virtual void residual_forward(const ResidualArgs<float>& a, Stream stream) const = 0;
  virtual void residual_forward(const ResidualArgs<Bf16>& a, Stream stream) const = 0;
  virtual void residual_backward(const ResidualArgs<float>& a, Stream stream) const = 0;
  virtual void residual_backward(const ResidualArgs<Bf16>& a, Stream stream) const = 0;
  virtual void rope(const RopeArgs<float>& a, bool backward, Stream stream) const = 0;
  virtual void rope(const RopeArgs<Bf16>& a, bool backward, Stream stream) const = 0;
  virtual void swiglu(const SwigluArgs<float>& a, bool backward, Stream stream) const = 0;
  virtual void swiglu(const SwigluArgs<Bf16>& a, bool backward, Stream stream) const = 0;
};

const Kernels& gpu_kernels();

}  // namespace ddl::cuda
