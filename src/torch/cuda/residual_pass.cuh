// The fused residual pass (kernels/residual_pass.h) for GPUs: X_d += coef_d h, x_in = sum_d mix_d X_d,
// context = RMSNorm(x_in), and the numbers that steer the next write; and the mirror image, which walks X back.
// State, norms, gates and sums are f32; h and context are T, float or bf16. Formulas: docs/math.md.
//
// A block takes a token at a time. Where the width allows it (kHold) a thread holds its features of all D planes in
// registers, and the state is read once and written once; wider rows and unusual numbers of channels go through
// memory between the sweeps.
#pragma once

#include "torch/cuda/arguments.h"
#include "torch/cuda/device.cuh"

namespace ddl::cuda {

// How a write makes its coefficients. All threads compute the same ones; the first leaves what is saved.

// X_0 += h
struct AddWrite {
  static constexpr bool kSteered = false;
};

// X_d += beta (v_d - e r_d) k with k = s h, s = 1 / sqrt(|h|^2 + k_eps^2), r_d = k . X_d; e = 1, or 0 for the
// write-only control (model/residual/delta_coefficients.h has the derivatives).
// Steering numbers: beta, v_0, ..., v_{D-1}. Saved: s, and with the erase term r_0, ..., r_{D-1}.
struct DeltaWrite {
  static constexpr bool kSteered = true;
};

// body(c) for the features c, c + 1, ..., c + W - 1 of this thread: once where it holds them, else in turns.
template <bool kHold, int W, class Body>
__device__ __forceinline__ void for_features(int C, const Body& body) {
  int c = W * static_cast<int>(threadIdx.x);
  if constexpr (kHold) {
    if (c < C) body(c);
  } else {
    for (; c < C; c += W * static_cast<int>(blockDim.x)) body(c);
  }
}

// x_in of W features, from planes in registers or in memory.
template <int W, int M, class Plane>
__device__ __forceinline__ Vec<W> mixed(const float* mix_DC, int D, int C, int c, const Plane& plane) {
  if (!mix_DC) return plane(0);
  Vec<W> x{};
  DDL_UNROLL for (int d = 0; d < M; ++d) {
    if (d >= D) continue;
    const Vec<W> m = load<W>(mix_DC + d * C + c), X = plane(d);
    DDL_UNROLL for (int i = 0; i < W; ++i) x.v[i] = fmaf(m.v[i], X.v[i], x.v[i]);
  }
  return x;
}

__device__ __forceinline__ float activated(const Number& number, float u) {
  if (number.activation == Activation::kSigmoid) return number.scale * sigmoid(u);
  if (number.activation == Activation::kTanh) return number.scale * tanhf(u);
  return number.scale * u;
}
// du from the gradient of value = scale act(u).
__device__ __forceinline__ float activation_backward(const Number& number, float dvalue, float value) {
  if (number.activation == Activation::kSigmoid) return dvalue * value * (1 - value / number.scale);
  if (number.activation == Activation::kTanh) return dvalue * (number.scale - value * value / number.scale);
  return dvalue * number.scale;
}

// kD, kR: channels and steering numbers, known when compiled; 0 and -1: D of at most kMaxChannels, and any numbers.
template <class T, class Write, int W, int kD, int kR, bool kHold>
__global__ void __launch_bounds__(kPassThreads) residual_forward_kernel(ResidualArgs<T> a) {
  constexpr int M = kD > 0 ? kD : kMaxChannels, kSums = kR >= 0 ? kR : kMaxNumbers;
  __shared__ float shared[kPassThreads / kWarp * ((M > kSums ? M : kSums) + 1)];
  const int C = a.C, D = kD > 0 ? kD : a.D, R = kR >= 0 ? kR : a.numbers;
  const bool first = threadIdx.x == 0;
  for (int n = static_cast<int>(blockIdx.x); n < a.N; n += static_cast<int>(gridDim.x)) {
    float* state = a.state_NDC + static_cast<long>(n) * D * C;
    const T* h_C = a.h_NC ? a.h_NC + static_cast<long>(n) * C : nullptr;
    Vec<W> held[kHold ? M : 1];
    Vec<W> held_h{}, held_x{};
    float coef[M];
    coef[0] = 1;
    if constexpr (kHold)
      for_features<true, W>(C, [&](int c) {
        DDL_UNROLL for (int d = 0; d < M; ++d) held[d] = load<W>(state + d * C + c);
        if (h_C) held_h = load<W>(h_C + c);
      });

    if constexpr (Write::kSteered)
      if (h_C) {
        float s[M + 1] = {};  // h . X_d, then |h|^2
        for_features<kHold, W>(C, [&](int c) {
          const Vec<W> h = kHold ? held_h : load<W>(h_C + c);
          DDL_UNROLL for (int d = 0; d < M; ++d) if (d < D) s[d] +=
              dot(h, kHold ? held[kHold ? d : 0] : load<W>(state + d * C + c));
          s[M] += dot(h, h);
        });
        block_sum(s, shared);
        const float scale = 1 / sqrtf(fmaf(a.k_eps, a.k_eps, s[M]));
        const float* steer = a.steer_NR + static_cast<long>(n) * a.steer_stride;
        float* saved = a.saved_NQ + static_cast<long>(n) * a.saved_stride;
        if (first) saved[0] = scale;
        DDL_UNROLL for (int d = 0; d < M; ++d) {
          if (d >= D) continue;
          const float r = a.erase * (s[d] * scale);
          if (first && a.erase != 0) saved[1 + d] = r;
          coef[d] = steer[0] * (steer[1 + d] - r) * scale;
        }
      }

    // Writes, mixes, and collects what the norm and the numbers need.
    float t[kSums + 1] = {};  // w_r . input_r without the norm's factor, then |x_in|^2
    for_features<kHold, W>(C, [&](int c) {
      const auto plane = [&](int d) {
        Vec<W> X = kHold ? held[kHold ? d : 0] : load<W>(state + d * C + c);
        if (h_C) {
          add_scaled(X, coef[d], kHold ? held_h : load<W>(h_C + c));
          store(state + d * C + c, X);
        }
        return X;
      };
      if (!a.norm_C) {
        DDL_UNROLL for (int d = 0; d < M; ++d) if (d < D) plane(d);
        return;
      }
      const Vec<W> x = mixed<W, M>(a.mix_DC, D, C, c, plane), xg = product(x, load<W>(a.norm_C + c));
      if constexpr (kHold) held_x = x;
      t[kSums] += dot(x, x);
      DDL_UNROLL for (int r = 0; r < kSums; ++r) if (r < R && a.number[r].input != Input::kNone) t[r] +=
          dot(load<W>(a.number[r].w_C + c), a.number[r].input == Input::kContext ? xg : x);
    });
    if (!a.norm_C) continue;
    block_sum(t, shared);
    const float rstd = 1 / sqrtf(t[kSums] / static_cast<float>(C) + a.norm_eps);
    for_features<kHold, W>(C, [&](int c) {
      const Vec<W> x =
          kHold ? held_x : mixed<W, M>(a.mix_DC, D, C, c, [&](int d) { return load<W>(state + d * C + c); });
      const Vec<W> g = load<W>(a.norm_C + c);
      Vec<W> y;
      DDL_UNROLL for (int i = 0; i < W; ++i) y.v[i] = x.v[i] * rstd * g.v[i];
      store(a.context_NC + static_cast<long>(n) * C + c, y);
    });
    if (first) {
      a.rstd_N[n] = rstd;
      DDL_UNROLL for (int r = 0; r < kSums; ++r) {
        if (r >= R) continue;
        const Number& number = a.number[r];
        const float u = t[r] * (number.input == Input::kContext ? rstd : 1) + (number.b ? *number.b : 0);
        a.next_steer_NR[static_cast<long>(n) * a.steer_stride + r] = activated(number, u);
      }
    }
  }
}

// In: state after the write and before the read, dstate its gradient by all later paths but this read's.
// Out: state before the write, dstate its gradient by the same paths; dh, dsteer; partial gradients of the weights.
template <class T, class Write, int W, int kD, int kR, bool kHold>
__global__ void __launch_bounds__(kPassThreads) residual_backward_kernel(ResidualArgs<T> a) {
  constexpr int M = kD > 0 ? kD : kMaxChannels, kSums = kR >= 0 ? kR : kMaxNumbers;
  __shared__ float shared[kPassThreads / kWarp * M];
  const int C = a.C, D = kD > 0 ? kD : a.D, R = kR >= 0 ? kR : a.numbers;
  const bool first = threadIdx.x == 0;
  float* part = a.part + static_cast<long>(blockIdx.x) * a.part_stride;
  // Gradients of weights, over the block's tokens: in registers, or in the block's row of memory.
  constexpr int kSlots = kHold ? 1 + M + kSums : 1;
  Vec<W> sums[kSlots] = {};
  float db[kSums + 1] = {};
  const auto collect = [&](int slot, int c, const Vec<W>& x) {
    if constexpr (kHold) {
      DDL_UNROLL for (int i = 0; i < W; ++i) sums[kHold ? slot : 0].v[i] += x.v[i];
    } else {
      Vec<W> sum = load<W>(part + static_cast<long>(slot) * C + c);
      DDL_UNROLL for (int i = 0; i < W; ++i) sum.v[i] += x.v[i];
      store(part + static_cast<long>(slot) * C + c, sum);
    }
  };
  if (!kHold && a.norm_C)
    for_features<kHold, W>(C, [&](int c) {
      for (int slot = 0; slot < 1 + D + R; ++slot) store(part + static_cast<long>(slot) * C + c, Vec<W>{});
    });

  for (int n = static_cast<int>(blockIdx.x); n < a.N; n += static_cast<int>(gridDim.x)) {
    float* state = a.state_NDC + static_cast<long>(n) * D * C;
    float* dstate = a.dstate_NDC + static_cast<long>(n) * D * C;
    Vec<W> X[kHold ? M : 1], G[kHold ? M : 1];
    const auto plane_of = [&](int d, int c) { return kHold ? X[kHold ? d : 0] : load<W>(state + d * C + c); };
    const auto gradient_of = [&](int d, int c) {
      return kHold ? G[kHold ? d : 0] : load<W>(dstate + d * C + c);
    };
    if constexpr (kHold)
      for_features<true, W>(C, [&](int c) {
        DDL_UNROLL for (int d = 0; d < M; ++d) {
          X[d] = load<W>(state + d * C + c);
          G[d] = a.fresh_dstate && a.norm_C ? Vec<W>{} : load<W>(dstate + d * C + c);
        }
      });

    if (a.norm_C) {
      const float rstd = a.rstd_N[n];
      float du[kSums + 1];
      DDL_UNROLL for (int r = 0; r < kSums; ++r) {
        if (r >= R) continue;
        const long at = static_cast<long>(n) * a.steer_stride + r;
        du[r] = activation_backward(a.number[r], a.dnext_steer_NR[at], a.next_steer_NR[at]);
        db[r] += du[r];
      }
      // dL/dcontext by all paths, and dL/dx_in by the numbers that read it without the norm.
      const auto paths = [&](int c, Vec<W>& total, Vec<W>& unnormed) {
        total = load<W>(a.dcontext_NC + static_cast<long>(n) * C + c);
        unnormed = Vec<W>{};
        DDL_UNROLL for (int r = 0; r < kSums; ++r) {
          if (r >= R || a.number[r].input == Input::kNone) continue;
          const Vec<W> w = load<W>(a.number[r].w_C + c);
          if (a.number[r].input == Input::kContext)
            add_scaled(total, du[r], w);
          else
            add_scaled(unnormed, du[r], w);
        }
      };
      Vec<W> held_total{}, held_unnormed{}, held_x{};
      float mean[1] = {};
      for_features<kHold, W>(C, [&](int c) {
        const Vec<W> x = mixed<W, M>(a.mix_DC, D, C, c, [&](int d) { return plane_of(d, c); });
        Vec<W> total, unnormed;
        paths(c, total, unnormed);
        mean[0] += dot(product(total, load<W>(a.norm_C + c)), x);
        if constexpr (kHold) held_total = total, held_unnormed = unnormed, held_x = x;
      });
      block_sum(mean, shared);
      const float pull = rstd * rstd * rstd * (mean[0] / static_cast<float>(C));
      for_features<kHold, W>(C, [&](int c) {
        Vec<W> total = held_total, unnormed = held_unnormed, x = held_x;
        if constexpr (!kHold) {
          x = mixed<W, M>(a.mix_DC, D, C, c, [&](int d) { return plane_of(d, c); });
          paths(c, total, unnormed);
        }
        const Vec<W> g = load<W>(a.norm_C + c);
        Vec<W> normed, dx, dnorm;
        DDL_UNROLL for (int i = 0; i < W; ++i) {
          normed.v[i] = x.v[i] * rstd * g.v[i];
          dnorm.v[i] = total.v[i] * rstd * x.v[i];
          dx.v[i] = fmaf(-pull, x.v[i], total.v[i] * rstd * g.v[i]) + unnormed.v[i];
        }
        collect(0, c, dnorm);
        DDL_UNROLL for (int r = 0; r < kSums; ++r) {
          if (r >= R || a.number[r].input == Input::kNone) continue;
          const Vec<W>& input = a.number[r].input == Input::kContext ? normed : x;
          Vec<W> dw{};
          add_scaled(dw, du[r], input);
          collect(1 + D + r, c, dw);
        }
        DDL_UNROLL for (int d = 0; d < M; ++d) {
          if (d >= D) continue;
          Vec<W> to_plane = dx;
          if (a.mix_DC) {
            collect(1 + d, c, product(dx, plane_of(d, c)));
            to_plane = product(load<W>(a.mix_DC + d * C + c), dx);
          }
          const Vec<W> before = kHold || !a.fresh_dstate ? gradient_of(d, c) : Vec<W>{};
          DDL_UNROLL for (int i = 0; i < W; ++i) to_plane.v[i] += before.v[i];
          if constexpr (kHold)
            G[d] = to_plane;
          else
            store(dstate + d * C + c, to_plane);
        }
      });
    }

    if (!a.h_NC) {
      if constexpr (kHold)
        for_features<true, W>(
            C, [&](int c) { DDL_UNROLL for (int d = 0; d < M; ++d) store(dstate + d * C + c, G[d]); });
      continue;
    }
    const T* h_C = a.h_NC + static_cast<long>(n) * C;
    T* dh_C = a.dh_NC + static_cast<long>(n) * C;
    float coef[M], erase[M], along = 0;
    coef[0] = 1, erase[0] = 0;
    if constexpr (Write::kSteered) {
      float s[M] = {};  // h . G_d
      for_features<kHold, W>(C, [&](int c) {
        const Vec<W> h = load<W>(h_C + c);
        DDL_UNROLL for (int d = 0; d < M; ++d) if (d < D) s[d] += dot(h, gradient_of(d, c));
      });
      block_sum(s, shared);
      const float* steer = a.steer_NR + static_cast<long>(n) * a.steer_stride;
      const float* saved = a.saved_NQ + static_cast<long>(n) * a.saved_stride;
      float* dsteer = a.dsteer_NR + static_cast<long>(n) * a.steer_stride;
      const float beta = steer[0], scale = saved[0];
      float dbeta = 0, k_dk = 0;
      DDL_UNROLL for (int d = 0; d < M; ++d) {
        if (d >= D) continue;
        const float v = steer[1 + d], r = a.erase != 0 ? saved[1 + d] : 0, change = beta * (s[d] * scale);
        dbeta = fmaf(v - r, s[d] * scale, dbeta);
        k_dk = fmaf(change, v - 2 * r, k_dk);
        coef[d] = beta * (v - r) * scale;
        erase[d] = a.erase * change * scale;
        if (first) dsteer[1 + d] = change;
      }
      if (first) dsteer[0] = dbeta;
      along = scale * scale * k_dk;
    }
    for_features<kHold, W>(C, [&](int c) {
      const Vec<W> h = load<W>(h_C + c);
      Vec<W> dh{};
      DDL_UNROLL for (int d = 0; d < M; ++d) {
        if (d >= D) continue;
        Vec<W> x = plane_of(d, c), g = gradient_of(d, c);
        add_scaled(x, -coef[d], h);
        add_scaled(dh, coef[d], g);
        add_scaled(dh, -erase[d], x);
        add_scaled(g, -erase[d], h);
        store(state + d * C + c, x);
        store(dstate + d * C + c, g);
      }
      add_scaled(dh, -along, h);
      store(dh_C + c, dh);
    });
  }

  if (!a.norm_C) return;
  if constexpr (kHold)
    for_features<true, W>(C, [&](int c) {
      DDL_UNROLL for (int slot = 0; slot < kSlots; ++slot)
          store(part + static_cast<long>(slot) * C + c, sums[slot]);
    });
  if (first)
    DDL_UNROLL for (int r = 0; r < kSums; ++r) if (r < R) part[static_cast<long>(1 + D + R) * C + r] = db[r];
}

// Which of the kernels a pass takes, once for a GPU and for the tests. launch(grid, block, kernel, arguments).

template <class T>
using PassKernel = void (*)(ResidualArgs<T>);
template <class T>
struct PassKernels {
  PassKernel<T> forward, backward;
};
template <class T, class Write, int W, int kD, int kR, bool kHold>
PassKernels<T> pass_kernels() {
  return {residual_forward_kernel<T, Write, W, kD, kR, kHold>,
          residual_backward_kernel<T, Write, W, kD, kR, kHold>};
}

template <class T>
PassKernels<T> choose_pass(const ResidualArgs<T>& a) {
  const bool vectors = a.C % 4 == 0, held = vectors && a.C <= kHeldWidth;
  const bool steers = a.steer_stride > 0;  // the plain addition has no numbers
  if (!steers)
    return held      ? pass_kernels<T, AddWrite, 4, 1, 0, true>()
           : vectors ? pass_kernels<T, AddWrite, 4, 1, 0, false>()
                     : pass_kernels<T, AddWrite, 1, 1, 0, false>();
  if (held && a.D == 4 && a.numbers == 5) return pass_kernels<T, DeltaWrite, 4, 4, 5, true>();
  if (held && a.D == 4 && a.numbers == 0) return pass_kernels<T, DeltaWrite, 4, 4, 0, true>();
  if (held && a.D == 1 && a.numbers == 2) return pass_kernels<T, DeltaWrite, 4, 1, 2, true>();
  if (held && a.D == 1 && a.numbers == 5) return pass_kernels<T, DeltaWrite, 4, 1, 5, true>();
  if (held && a.D == 1 && a.numbers == 0) return pass_kernels<T, DeltaWrite, 4, 1, 0, true>();
  return vectors ? pass_kernels<T, DeltaWrite, 4, 0, -1, false>()
                 : pass_kernels<T, DeltaWrite, 1, 0, -1, false>();
}

inline unsigned pass_threads(int C) {
  const int vectors = C % 4 == 0 ? C / 4 : C;
  const int threads = (vectors + kWarp - 1) / kWarp * kWarp;
  return static_cast<unsigned>(threads < kPassThreads ? threads : kPassThreads);
}

template <class T, class Launch>
void residual_forward(const ResidualArgs<T>& a, const Launch& launch) {
  if (a.N == 0) return;
  launch(dim3(static_cast<unsigned>(a.N)), dim3(pass_threads(a.C)), choose_pass(a).forward, a);
}

template <class T, class Launch>
void residual_backward(ResidualArgs<T> a, const Launch& launch) {
  if (a.N == 0) return;
  a.part_stride = residual_part_floats(a.D, a.C, a.numbers);
  const int blocks = pass_blocks(a.N, a.D, a.C, a.numbers);
  launch(dim3(static_cast<unsigned>(blocks)), dim3(pass_threads(a.C)), choose_pass(a).backward, a);
  if (!a.norm_C) return;
  PartSum sum{};
  sum.part = a.part, sum.stride = a.part_stride, sum.parts = blocks;
  long offset = 0;
  const auto add = [&](float* dst, int count) {
    if (dst) sum.array[sum.arrays++] = {dst, offset, count};
    offset += count;
  };
  add(a.dnorm_C, a.C);
  add(a.dmix_DC, a.D * a.C);
  for (int r = 0; r < a.numbers; ++r) add(a.number[r].dw_C, a.C);
  for (int r = 0; r < a.numbers; ++r) add(a.number[r].db, 1);
  sum_parts(sum, launch);
}

}  // namespace ddl::cuda
