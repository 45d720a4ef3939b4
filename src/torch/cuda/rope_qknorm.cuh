// Rotary positions and the RMSNorm of queries and keys (kernels/rope_qknorm.h has the formulas). A warp takes one
// head of one token; blockIdx.y says whether it is a query's or a key's.
#pragma once

#include "torch/cuda/arguments.h"
#include "torch/cuda/device.cuh"

namespace ddl::cuda {

// The two features of a pair, rotated by (cos, sin).
struct Pair {
  float a, b;
};
__device__ __forceinline__ Pair rotated(Pair x, float c, float s) {
  return {fmaf(x.a, c, -(x.b * s)), fmaf(x.a, s, x.b * c)};
}

// What a warp needs to find head `head` of token `n`.
template <class T>
struct RopePlace {
  long input, output, rstd;
  const float* cos_sin;
  __device__ __forceinline__ RopePlace(const RopeArgs<T>& a, int item, int which) {
    const int n = item / a.H, head = item % a.H, C = a.H * a.K;
    input = static_cast<long>(n) * 3 * C + which * C + head * a.K;
    output = static_cast<long>(n) * C + head * a.K;
    rstd = static_cast<long>(n) * 2 * a.H + which * a.H + head;
    cos_sin = a.rope_TK + static_cast<long>(n % a.T_) * a.K;
  }
};

template <class T>
__global__ void __launch_bounds__(kRopeThreads) rope_forward_kernel(RopeArgs<T> a) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, half = a.K / 2,
            which = static_cast<int>(blockIdx.y);
  const int item = static_cast<int>(blockIdx.x) * kRopeWarps + static_cast<int>(threadIdx.x) / kWarp;
  if (item >= a.N * a.H) return;  // a whole warp
  const RopePlace<T> at(a, item, which);
  Pair x[kRopePairs];
  float squares = 0;
  DDL_UNROLL for (int p = 0; p < kRopePairs; ++p) {
    const int i = lane + kWarp * p;
    x[p] = i < half ? Pair{to_float(a.qkv_N3C[at.input + i]), to_float(a.qkv_N3C[at.input + half + i])}
                    : Pair{0, 0};
    squares = fmaf(x[p].a, x[p].a, fmaf(x[p].b, x[p].b, squares));
  }
  const float rstd = 1 / sqrtf(warp_sum(squares) / static_cast<float>(a.K) + kQkNormEps);
  if (lane == 0) a.rstd_N2H[at.rstd] = rstd;
  const float* w = which == 0 ? a.w_K[0] : a.w_K[1];  // no index into arguments: it would copy them
  T* y = (which == 0 ? a.y_NC[0] : a.y_NC[1]) + at.output;
  DDL_UNROLL for (int p = 0; p < kRopePairs; ++p) {
    const int i = lane + kWarp * p;
    if (i >= half) continue;
    const Pair r = rotated(x[p], at.cos_sin[i], at.cos_sin[half + i]);
    put(y[i], w[i] * (r.a * rstd));
    put(y[half + i], w[half + i] * (r.b * rstd));
  }
}

// dy and dqkv may not overlap.
template <class T>
__global__ void __launch_bounds__(kRopeThreads) rope_backward_kernel(RopeArgs<T> a) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, half = a.K / 2,
            which = static_cast<int>(blockIdx.y);
  const int warp = static_cast<int>(blockIdx.x) * kRopeWarps + static_cast<int>(threadIdx.x) / kWarp;
  const int warps = static_cast<int>(gridDim.x) * kRopeWarps;
  const float* w = which == 0 ? a.w_K[0] : a.w_K[1];  // no index into arguments: it would copy them
  Pair dw[kRopePairs] = {};
  for (int item = warp; item < a.N * a.H; item += warps) {
    const RopePlace<T> at(a, item, which);
    const T* dy = (which == 0 ? a.dy_NC[0] : a.dy_NC[1]) + at.output;
    const float rstd = a.rstd_N2H[at.rstd];
    Pair x[kRopePairs], u[kRopePairs];
    float sum = 0;  // of u n, with n = r rstd and u = dy w
    DDL_UNROLL for (int p = 0; p < kRopePairs; ++p) {
      const int i = lane + kWarp * p;
      if (i >= half) continue;
      x[p] = {to_float(a.qkv_N3C[at.input + i]), to_float(a.qkv_N3C[at.input + half + i])};
      const Pair r = rotated(x[p], at.cos_sin[i], at.cos_sin[half + i]);
      const Pair g = {to_float(dy[i]), to_float(dy[half + i])};
      const Pair gn = {g.a * (r.a * rstd), g.b * (r.b * rstd)};
      dw[p].a += gn.a, dw[p].b += gn.b;
      u[p] = {g.a * w[i], g.b * w[half + i]};
      sum = fmaf(w[i], gn.a, fmaf(w[half + i], gn.b, sum));
    }
    const float along = rstd * (warp_sum(sum) / static_cast<float>(a.K));
    DDL_UNROLL for (int p = 0; p < kRopePairs; ++p) {
      const int i = lane + kWarp * p;
      if (i >= half) continue;
      const Pair back = rotated(u[p], at.cos_sin[i], -at.cos_sin[half + i]);
      put(a.dqkv_N3C[at.input + i], rstd * fmaf(-along, x[p].a, back.a));
      put(a.dqkv_N3C[at.input + half + i], rstd * fmaf(-along, x[p].b, back.b));
    }
  }
  float* part = a.part + (static_cast<long>(which) * warps + warp) * a.K;
  DDL_UNROLL for (int p = 0; p < kRopePairs; ++p) {
    const int i = lane + kWarp * p;
    if (i < half) part[i] = dw[p].a, part[half + i] = dw[p].b;
  }
}

template <class T, class Launch>
void rope_forward(const RopeArgs<T>& a, const Launch& launch) {
  if (a.N == 0) return;
  const int blocks = (a.N * a.H + kRopeWarps - 1) / kRopeWarps;
  launch(dim3(static_cast<unsigned>(blocks), 2), dim3(kRopeThreads), rope_forward_kernel<T>, a);
}

template <class T, class Launch>
void rope_backward(const RopeArgs<T>& a, const Launch& launch) {
  if (a.N == 0) return;
  const int blocks = rope_blocks(a.N, a.H), rows = blocks * kRopeWarps;
  launch(dim3(static_cast<unsigned>(blocks), 2), dim3(kRopeThreads), rope_backward_kernel<T>, a);
  PartSum sum{};
  sum.part = a.part, sum.stride = a.K, sum.parts = rows, sum.arrays = 2;
  for (int which = 0; which < 2; ++which)
    sum.array[which] = {a.dw_K[which], static_cast<long>(which) * rows * a.K, a.K};
  sum_parts(sum, launch);
}

}  // namespace ddl::cuda
