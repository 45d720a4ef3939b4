// The kernels as a GPU runs them: nvcc compiles this file, which has all variants that the launchers choose from.
#include <cuda_runtime.h>

#include <cstring>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "torch/cuda/kernels.h"
#include "torch/cuda/residual_pass.cuh"
#include "torch/cuda/rope_qknorm.cuh"
#include "torch/cuda/swiglu.cuh"

namespace ddl::cuda {
namespace {

class GpuKernels final : public Kernels {
 public:
  void residual_forward(const ResidualArgs<float>& a, Stream s) const override { pass(a, false, s); }
  void residual_forward(const ResidualArgs<Bf16>& a, Stream s) const override { pass(a, false, s); }
  void residual_backward(const ResidualArgs<float>& a, Stream s) const override { pass(a, true, s); }
  void residual_backward(const ResidualArgs<Bf16>& a, Stream s) const override { pass(a, true, s); }
  void rope(const RopeArgs<float>& a, bool backward, Stream s) const override { rotate(a, backward, s); }
  void rope(const RopeArgs<Bf16>& a, bool backward, Stream s) const override { rotate(a, backward, s); }
  void swiglu(const SwigluArgs<float>& a, bool backward, Stream s) const override {
    cuda::swiglu(a, backward, on(s));
  }
  void swiglu(const SwigluArgs<Bf16>& a, bool backward, Stream s) const override {
    cuda::swiglu(a, backward, on(s));
  }

 private:
  struct Launch {
    cudaStream_t stream;
    template <class Kernel, class Args>
    void operator()(dim3 grid, dim3 block, Kernel kernel, const Args& args) const {
      kernel<<<grid, block, 0, stream>>>(args);
      const cudaError_t error = cudaGetLastError();
      if (error != cudaSuccess)
        throw std::runtime_error(std::string("a CUDA kernel did not start: ") + cudaGetErrorString(error));
    }
  };
  static Launch on(Stream s) { return {static_cast<cudaStream_t>(s)}; }
  template <class T>
  static void pass(const ResidualArgs<T>& a, bool backward, Stream s) {
    backward ? cuda::residual_backward(a, on(s)) : cuda::residual_forward(a, on(s));
  }
  template <class T>
  static void rotate(const RopeArgs<T>& a, bool backward, Stream s) {
    backward ? rope_backward(a, on(s)) : rope_forward(a, on(s));
  }
};

}  // namespace

const Kernels& gpu_kernels() {
  static const GpuKernels kernels;
  return kernels;
}

}  // namespace ddl::cuda
