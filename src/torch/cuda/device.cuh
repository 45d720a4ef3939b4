// What the CUDA kernels share. Their text is compiled twice: by nvcc for GPUs, and by the host's compiler for the
// tests, which run it on the CPU (tests/cuda_on_cpu.h).
#pragma once

#include <cstdint>

#include "torch/cuda/arguments.h"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#define DDL_UNROLL _Pragma("unroll")
#else
#define DDL_UNROLL
#endif

namespace ddl::cuda {

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffu;

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(Bf16 x) { return __uint_as_float(std::uint32_t{x.bits} << 16); }
__device__ __forceinline__ void put(float& to, float x) { to = x; }
__device__ __forceinline__ void put(Bf16& to, float x) {
  to.bits = __bfloat16_as_ushort(__float2bfloat16_rn(x));
}

// W neighbouring features of a row, in one access where W is 4: then rows start on 16 bytes (8 for bf16).
template <int W>
struct Vec {
  float v[W];
};

template <int W>
__device__ __forceinline__ Vec<W> load(const float* p) {
  Vec<W> x;
  if constexpr (W == 4) {
    const float4 q = *reinterpret_cast<const float4*>(p);
    x.v[0] = q.x, x.v[1] = q.y, x.v[2] = q.z, x.v[3] = q.w;
  } else {
    for (int i = 0; i < W; ++i) x.v[i] = p[i];
  }
  return x;
}

template <int W>
__device__ __forceinline__ Vec<W> load(const Bf16* p) {
  Vec<W> x;
  if constexpr (W == 4) {
    const ushort4 q = *reinterpret_cast<const ushort4*>(p);
    x.v[0] = to_float(Bf16{q.x}), x.v[1] = to_float(Bf16{q.y});
    x.v[2] = to_float(Bf16{q.z}), x.v[3] = to_float(Bf16{q.w});
  } else {
    for (int i = 0; i < W; ++i) x.v[i] = to_float(p[i]);
  }
  return x;
}

template <int W>
__device__ __forceinline__ void store(float* p, const Vec<W>& x) {
  if constexpr (W == 4)
    *reinterpret_cast<float4*>(p) = float4{x.v[0], x.v[1], x.v[2], x.v[3]};
  else
    for (int i = 0; i < W; ++i) p[i] = x.v[i];
}

template <int W>
__device__ __forceinline__ void store(Bf16* p, const Vec<W>& x) {
  Bf16 b[W];
  for (int i = 0; i < W; ++i) put(b[i], x.v[i]);
  if constexpr (W == 4)
    *reinterpret_cast<ushort4*>(p) = ushort4{b[0].bits, b[1].bits, b[2].bits, b[3].bits};
  else
    for (int i = 0; i < W; ++i) p[i] = b[i];
}

template <int W>
__device__ __forceinline__ float dot(const Vec<W>& a, const Vec<W>& b) {
  float sum = 0;
  DDL_UNROLL for (int i = 0; i < W; ++i) sum = fmaf(a.v[i], b.v[i], sum);
  return sum;
}

// y += s x
template <int W>
__device__ __forceinline__ void add_scaled(Vec<W>& y, float s, const Vec<W>& x) {
  DDL_UNROLL for (int i = 0; i < W; ++i) y.v[i] = fmaf(s, x.v[i], y.v[i]);
}

template <int W>
__device__ __forceinline__ Vec<W> product(const Vec<W>& a, const Vec<W>& b) {
  Vec<W> y;
  DDL_UNROLL for (int i = 0; i < W; ++i) y.v[i] = a.v[i] * b.v[i];
  return y;
}

__device__ __forceinline__ float warp_sum(float x) {
  DDL_UNROLL for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) x += __shfl_xor_sync(kAllLanes, x, lanes);
  return x;
}

// Every thread of the block gets the sums of x[i] over all threads. `shared` holds K floats for each warp; the
// sums are joined in the order of the warps, so the bits do not depend on which warp comes first.
template <int K>
__device__ __forceinline__ void block_sum(float (&x)[K], float* shared) {
  DDL_UNROLL for (int i = 0; i < K; ++i) x[i] = warp_sum(x[i]);
  const int warp = static_cast<int>(threadIdx.x) / kWarp, warps = static_cast<int>(blockDim.x) / kWarp;
  if (threadIdx.x % kWarp == 0) DDL_UNROLL for (int i = 0; i < K; ++i) shared[warp * K + i] = x[i];
  __syncthreads();
  DDL_UNROLL for (int i = 0; i < K; ++i) {
    float sum = 0;
    for (int w = 0; w < warps; ++w) sum += shared[w * K + i];
    x[i] = sum;
  }
  __syncthreads();  // before the next sum writes to `shared`
}

__device__ __forceinline__ float sigmoid(float x) { return 1 / (1 + expf(-x)); }

// dst[i] += sum over p < parts, in order, of part[p * stride + i], for the arrays of a table. Gradients of weights,
// which blocks collect in rows of their own.
struct PartSum {
  static constexpr int kMaxArrays = 2 + 2 * kMaxNumbers;
  struct Array {
    float* dst;  // null: nobody wants it
    long offset;
    int count;
  };
  Array array[kMaxArrays];
  int arrays;
  const float* part;
  long stride;
  int parts;
};
constexpr int kPartSumThreads = 256;

template <int kUnused = 0>  // a template, so that several files may include it
__global__ void __launch_bounds__(kPartSumThreads) part_sum_kernel(PartSum a) {
  const PartSum::Array& array = a.array[blockIdx.y];
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (!array.dst || i >= array.count) return;
  float sum = 0;
  for (int p = 0; p < a.parts; ++p) sum += a.part[p * a.stride + array.offset + i];
  array.dst[i] += sum;
}

// launch(grid, block, kernel, arguments): on a GPU a kernel launch, in tests a loop.
template <class Launch>
void sum_parts(const PartSum& a, const Launch& launch) {
  int longest = 0;
  for (int i = 0; i < a.arrays; ++i) longest = a.array[i].count > longest ? a.array[i].count : longest;
  if (longest == 0) return;
  const unsigned blocks = static_cast<unsigned>((longest + kPartSumThreads - 1) / kPartSumThreads);
  launch(dim3(blocks, static_cast<unsigned>(a.arrays)), dim3(kPartSumThreads), part_sum_kernel<>, a);
}

}  // namespace ddl::cuda
