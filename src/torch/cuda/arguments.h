// What the CUDA kernels are given: plain structs of pointers and sizes, which any compiler can read.
#pragma once

#include <cstdint>

namespace ddl::cuda {

struct Bf16 {
  std::uint16_t bits;
};

// The residual pass.

constexpr int kMaxChannels = 16;               // D
constexpr int kMaxNumbers = 1 + kMaxChannels;  // R: steering numbers of a token
constexpr int kPassThreads = 256;              // of a block, at most
constexpr int kHeldWidth = 4 * kPassThreads;   // C that a block holds in registers
constexpr int kMaxPassBlocks = 512;            // of a backward pass: rows of partial gradients

enum class Input { kContext, kUnnormed, kNone };
enum class Activation { kIdentity, kSigmoid, kTanh };

// steer_r = scale act(w . input + b)
struct Number {
  Input input;
  Activation activation;
  float scale;
  const float* w_C;  // null with kNone
  const float* b;    // null: no bias
  float *dw_C, *db;  // backward: accumulated
};

template <class T>
struct ResidualArgs {
  int N = 0, D = 1, C = 0;
  float* state_NDC = nullptr;

  // Write; without it h is null.
  const T* h_NC = nullptr;
  const float* steer_NR = nullptr;  // of this write
  float* saved_NQ = nullptr;        // forward: out
  int steer_stride = 0, saved_stride = 0;
  float erase = 1, k_eps = 1e-5f;

  // Read; without it norm is null.
  const float* mix_DC = nullptr;  // null: x_in = X_0
  const float* norm_C = nullptr;
  float norm_eps = 1e-5f;
  float* rstd_N = nullptr;         // forward: out
  float* next_steer_NR = nullptr;  // of the next write; forward: out
  int numbers = 0;
  Number number[kMaxNumbers];
  T* context_NC = nullptr;  // forward: out

  // Backward.
  float* dstate_NDC = nullptr;
  bool fresh_dstate = false;                     // overwrite: no other path reaches the state
  const float* dcontext_NC = nullptr;            // of what was read
  const float* dnext_steer_NR = nullptr;         // may be dsteer_NR
  T* dh_NC = nullptr;                            // out
  float* dsteer_NR = nullptr;                    // out
  float *dmix_DC = nullptr, *dnorm_C = nullptr;  // accumulated
  float* part = nullptr;                         // residual_scratch_floats
  long part_stride = 0;                          // residual_backward sets it
};

// A block's row of partial gradients: the norm's C, the mix's D C, C of each number's weights, then the biases.
inline long residual_part_floats(int D, int C, int numbers) {
  return static_cast<long>(1 + D + numbers) * C + (numbers + 3) / 4 * 4;
}
inline int pass_blocks(int N, int D, int C, int numbers) {
  const long fitting = (64L << 20) / (4 * residual_part_floats(D, C, numbers));  // 64 MiB of rows
  const int most =
      fitting < kMaxPassBlocks ? (fitting < 32 ? 32 : static_cast<int>(fitting)) : kMaxPassBlocks;
  return N < most ? N : most;
}
inline long residual_scratch_floats(int N, int D, int C, int numbers) {
  return pass_blocks(N, D, C, numbers) * residual_part_floats(D, C, numbers);
}

// RoPE and the norm of queries and keys.

constexpr int kRopeThreads = 128, kRopeWarps = kRopeThreads / 32;
constexpr int kRopePairs = 4;                      // of a lane
constexpr int kMaxHeadSize = 2 * 32 * kRopePairs;  // K
constexpr int kMaxRopeBlocks = 512;                // of a backward pass
constexpr float kQkNormEps = 1e-5f;

template <class T>
struct RopeArgs {
  int N = 0, T_ = 1, H = 1, K = 2;  // token n stands at n % T_
  const T* qkv_N3C = nullptr;
  const float* rope_TK = nullptr;  // K/2 cosines, K/2 sines a position
  const float* w_K[2] = {};        // of queries, of keys
  float* rstd_N2H = nullptr;       // forward: out
  T* y_NC[2] = {};                 // forward: out
  const T* dy_NC[2] = {};          // backward
  T* dqkv_N3C = nullptr;           // out: its q and k parts
  float* dw_K[2] = {};             // accumulated
  float* part = nullptr;           // rope_scratch_floats
};

inline int rope_blocks(int N, int H) {
  const int blocks = (N * H + kRopeWarps - 1) / kRopeWarps;
  return blocks < kMaxRopeBlocks ? blocks : kMaxRopeBlocks;
}
inline long rope_scratch_floats(int N, int H, int K) { return 2L * rope_blocks(N, H) * kRopeWarps * K; }

// SwiGLU.

template <class T>
struct SwigluArgs {
  int N = 0, F = 0;
  const T* gate_up_N2F = nullptr;
  T* hidden_NF = nullptr;         // forward: out
  const T* dhidden_NF = nullptr;  // backward
  T* dgate_up_N2F = nullptr;      // out
};

}  // namespace ddl::cuda
