// RoPE + QK-norm and SwiGLU by the fused CUDA kernels, as operations that autograd knows.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

#include "torch/cuda/kernels.h"

namespace ddl {

// Queries and keys of [B, T, 3, H, K], rotated and normalised.
std::pair<at::Tensor, at::Tensor> kernel_rope_qknorm(const cuda::Kernels& kernels,
                                                     const at::Tensor& qkv_BT3HK, const at::Tensor& q_w_K,
                                                     const at::Tensor& k_w_K, const at::Tensor& rope_TK);
// silu(a) * b of [..., 2F].
at::Tensor kernel_swiglu(const cuda::Kernels& kernels, const at::Tensor& gate_up);

// A tensor's memory as a kernel takes it.
template <class T>
T* device_pointer(const at::Tensor& tensor) {
  return static_cast<T*>(tensor.data_ptr());
}
// use(T{}) with the kernels' type of a tensor: float or Bf16.
template <class Use>
void with_kernel_type(const at::Tensor& tensor, const Use& use) {
  if (tensor.scalar_type() == at::kBFloat16)
    use(cuda::Bf16{});
  else
    use(float{});
}

}  // namespace ddl
