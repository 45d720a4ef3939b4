#include "torch/cpu_kernels.h"

#include "cuda_on_cpu.h"
#include "torch/cuda/residual_pass.cuh"
#include "torch/cuda/rope_qknorm.cuh"
#include "torch/cuda/swiglu.cuh"

namespace ddl {
namespace {

class CpuKernels final : public cuda::Kernels {
  void residual_forward(const cuda::ResidualArgs<float>& a, cuda::Stream) const override {
    cuda::residual_forward(a, launch_);
  }
  void residual_forward(const cuda::ResidualArgs<cuda::Bf16>& a, cuda::Stream) const override {
    cuda::residual_forward(a, launch_);
  }
  void residual_backward(const cuda::ResidualArgs<float>& a, cuda::Stream) const override {
    cuda::residual_backward(a, launch_);
  }
  void residual_backward(const cuda::ResidualArgs<cuda::Bf16>& a, cuda::Stream) const override {
    cuda::residual_backward(a, launch_);
  }
  void rope(const cuda::RopeArgs<float>& a, bool backward, cuda::Stream) const override {
    rotate(a, backward);
  }
  void rope(const cuda::RopeArgs<cuda::Bf16>& a, bool backward, cuda::Stream) const override {
    rotate(a, backward);
  }
  void swiglu(const cuda::SwigluArgs<float>& a, bool backward, cuda::Stream) const override {
    cuda::swiglu(a, backward, launch_);
  }
  void swiglu(const cuda::SwigluArgs<cuda::Bf16>& a, bool backward, cuda::Stream) const override {
    cuda::swiglu(a, backward, launch_);
  }

  template <class T>
  void rotate(const cuda::RopeArgs<T>& a, bool backward) const {
    if (backward)
      cuda::rope_backward(a, launch_);
    else
      cuda::rope_forward(a, launch_);
  }
  const cuda_on_cpu::Launch launch_{};
};

}  // namespace

const cuda::Kernels& cpu_kernels() {
  static const CpuKernels kernels;
  return kernels;
}

}  // namespace ddl
