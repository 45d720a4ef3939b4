#include "torch/kernel_sublayers.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

namespace ddl {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

constexpr const char* kKernels = "kernels";
constexpr cuda::Stream kDefaultStream = nullptr;

std::int64_t as_number(const cuda::Kernels& kernels) { return reinterpret_cast<std::int64_t>(&kernels); }
const cuda::Kernels& kernels_of(AutogradContext* context) {
  return *reinterpret_cast<const cuda::Kernels*>(context->saved_data[kKernels].toInt());
}

// What forward and backward have in common.
template <class T>
cuda::RopeArgs<T> rope_arguments(const at::Tensor& qkv, const at::Tensor& q_w, const at::Tensor& k_w,
                                 const at::Tensor& rope, const at::Tensor& rstd) {
  cuda::RopeArgs<T> a;
  a.N = static_cast<int>(qkv.size(0) * qkv.size(1)), a.T_ = static_cast<int>(qkv.size(1));
  a.H = static_cast<int>(qkv.size(3)), a.K = static_cast<int>(qkv.size(4));
  a.qkv_N3C = device_pointer<T>(qkv), a.rope_TK = device_pointer<float>(rope);
  a.w_K[0] = device_pointer<float>(q_w), a.w_K[1] = device_pointer<float>(k_w);
  a.rstd_N2H = device_pointer<float>(rstd);
  return a;
}

struct RopeQknorm : torch::autograd::Function<RopeQknorm> {
  static variable_list forward(AutogradContext* context, const at::Tensor& qkv_in, const at::Tensor& q_w,
                               const at::Tensor& k_w, const at::Tensor& rope, std::int64_t kernels) {
    context->saved_data[kKernels] = kernels;
    const at::Tensor qkv = qkv_in.contiguous();
    const std::int64_t B = qkv.size(0), T = qkv.size(1), H = qkv.size(3), K = qkv.size(4);
    const at::Tensor q = at::empty({B, T, H, K}, qkv.options()), k = at::empty_like(q);
    const at::Tensor rstd = at::empty({B, T, 2, H}, q_w.options());
    with_kernel_type(qkv, [&](auto type) {
      using Act = decltype(type);
      auto a = rope_arguments<Act>(qkv, q_w, k_w, rope, rstd);
      a.y_NC[0] = device_pointer<Act>(q), a.y_NC[1] = device_pointer<Act>(k);
      kernels_of(context).rope(a, false, kDefaultStream);
    });
    context->save_for_backward({qkv, q_w, k_w, rope, rstd});
    return {q, k};
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list s = context->get_saved_variables();
    const at::Tensor &qkv = s[0], &q_w = s[1], &k_w = s[2], &rope = s[3], &rstd = s[4];
    const at::Tensor dq = gradients[0].contiguous(), dk = gradients[1].contiguous();
    const at::Tensor dqkv = at::zeros_like(qkv), dq_w = at::zeros_like(q_w), dk_w = at::zeros_like(k_w);
    with_kernel_type(qkv, [&](auto type) {
      using Act = decltype(type);
      auto a = rope_arguments<Act>(qkv, q_w, k_w, rope, rstd);
      a.dy_NC[0] = device_pointer<Act>(dq), a.dy_NC[1] = device_pointer<Act>(dk);
      a.dqkv_N3C = device_pointer<Act>(dqkv);
      a.dw_K[0] = device_pointer<float>(dq_w), a.dw_K[1] = device_pointer<float>(dk_w);
      const at::Tensor part = at::empty({cuda::rope_scratch_floats(a.N, a.H, a.K)}, q_w.options());
      a.part = device_pointer<float>(part);
      kernels_of(context).rope(a, true, kDefaultStream);
    });
    return {dqkv, dq_w, dk_w, Variable(), Variable()};
  }
};

template <class T>
cuda::SwigluArgs<T> swiglu_arguments(const at::Tensor& gate_up) {
  cuda::SwigluArgs<T> a;
  a.F = static_cast<int>(gate_up.size(-1) / 2), a.N = static_cast<int>(gate_up.numel() / gate_up.size(-1));
  a.gate_up_N2F = device_pointer<T>(gate_up);
  return a;
}

struct Swiglu : torch::autograd::Function<Swiglu> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate_up_in, std::int64_t kernels) {
    context->saved_data[kKernels] = kernels;
    const at::Tensor gate_up = gate_up_in.contiguous();
    std::vector<std::int64_t> shape = gate_up.sizes().vec();
    shape.back() /= 2;
    const at::Tensor hidden = at::empty(shape, gate_up.options());
    with_kernel_type(gate_up, [&](auto type) {
      using Act = decltype(type);
      auto a = swiglu_arguments<Act>(gate_up);
      a.hidden_NF = device_pointer<Act>(hidden);
      kernels_of(context).swiglu(a, false, kDefaultStream);
    });
    context->save_for_backward({gate_up});
    return hidden;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::Tensor gate_up = context->get_saved_variables()[0], dhidden = gradients[0].contiguous();
    const at::Tensor dgate_up = at::empty_like(gate_up);
    with_kernel_type(gate_up, [&](auto type) {
      using Act = decltype(type);
      auto a = swiglu_arguments<Act>(gate_up);
      a.dhidden_NF = device_pointer<Act>(dhidden), a.dgate_up_N2F = device_pointer<Act>(dgate_up);
      kernels_of(context).swiglu(a, true, kDefaultStream);
    });
    return {dgate_up, Variable()};
  }
};

}  // namespace

std::pair<at::Tensor, at::Tensor> kernel_rope_qknorm(const cuda::Kernels& kernels,
                                                     const at::Tensor& qkv_BT3HK, const at::Tensor& q_w_K,
                                                     const at::Tensor& k_w_K, const at::Tensor& rope_TK) {
  const variable_list both = RopeQknorm::apply(qkv_BT3HK, q_w_K, k_w_K, rope_TK, as_number(kernels));
  return {both[0], both[1]};
}

at::Tensor kernel_swiglu(const cuda::Kernels& kernels, const at::Tensor& gate_up) {
  return Swiglu::apply(gate_up, as_number(kernels));
}

}  // namespace ddl
