// hidden = silu(a) * b with [a | b] in a row of 2F (kernels/swiglu.h has the derivatives). A thread takes W features
// of a token: blockIdx.x, which may be large.
#pragma once

#include "torch/cuda/arguments.h"
#include "torch/cuda/device.cuh"

namespace ddl::cuda {

constexpr int kSwigluThreads = 256;

template <class T, int W>
__global__ void __launch_bounds__(kSwigluThreads) swiglu_forward_kernel(SwigluArgs<T> x) {
  const int f = W * static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x);
  if (f >= x.F) return;
  const long n = blockIdx.x, row = n * 2 * x.F + f;
  const Vec<W> a = load<W>(x.gate_up_N2F + row), b = load<W>(x.gate_up_N2F + row + x.F);
  Vec<W> y;
  DDL_UNROLL for (int i = 0; i < W; ++i) y.v[i] = a.v[i] * sigmoid(a.v[i]) * b.v[i];
  store(x.hidden_NF + n * x.F + f, y);
}

template <class T, int W>
__global__ void __launch_bounds__(kSwigluThreads) swiglu_backward_kernel(SwigluArgs<T> x) {
  const int f = W * static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x);
  if (f >= x.F) return;
  const long n = blockIdx.x, row = n * 2 * x.F + f;
  const Vec<W> a = load<W>(x.gate_up_N2F + row), b = load<W>(x.gate_up_N2F + row + x.F);
  const Vec<W> g = load<W>(x.dhidden_NF + n * x.F + f);
  Vec<W> da, db;
  DDL_UNROLL for (int i = 0; i < W; ++i) {
    const float s = sigmoid(a.v[i]);
    da.v[i] = g.v[i] * b.v[i] * (s * fmaf(a.v[i], 1 - s, 1));
    db.v[i] = g.v[i] * (a.v[i] * s);
  }
  store(x.dgate_up_N2F + row, da);
  store(x.dgate_up_N2F + row + x.F, db);
}

template <class T, class Launch>
void swiglu(const SwigluArgs<T>& a, bool backward, const Launch& launch) {
  if (a.N == 0 || a.F == 0) return;
  const int W = a.F % 4 == 0 ? 4 : 1, per_block = W * kSwigluThreads;
  const auto kernel = backward ? (W == 4 ? swiglu_backward_kernel<T, 4> : swiglu_backward_kernel<T, 1>)
                               : (W == 4 ? swiglu_forward_kernel<T, 4> : swiglu_forward_kernel<T, 1>);
  launch(dim3(static_cast<unsigned>(a.N), static_cast<unsigned>((a.F + per_block - 1) / per_block)),
         dim3(kSwigluThreads), kernel, a);
}

}  // namespace ddl::cuda
