// The attention sublayers of all blocks:
//   [q | k | v] = W_qkv context      q', k' = RMSNorm(rope(q)), RMSNorm(rope(k))      h = W_o attend(q', k', v)
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/arena.h"
#include "core/bf16.h"
#include "model/config.h"
#include "model/native/pass.h"
#include "model/params.h"
#include "model/part.h"

namespace ddl {

// Rows [q | k | v]: what one product with the joined weights gives.
template <class T>
struct PackedQkv {
  T* data = nullptr;
  Index C = 0, stride = 0;
  T* q(Index row = 0) const { return data + row * stride; }
  T* k(Index row = 0) const { return q(row) + C; }
  T* v(Index row = 0) const { return q(row) + 2 * C; }
};

template <class T>
class Attention {
 public:
  explicit Attention(const ModelConfig& config);
  void add_params(ParamTable& table);  // of the next block
  void plan(Arena& arena, const Room& room);
  void bind(const Numbers<T>& numbers);

  void forward(Index layer, T* h_NC, const T* context_NC, const Pass<T>& pass, const Exec& ex);
  // dcontext_NC overwrites.
  void backward(Index layer, float* dcontext_NC, const T* dh_NC, const T* context_NC, const Tokens& tokens,
                const Exec& ex);

  // For a KeyValueStore: the rows of this pass. rotate() makes queries (q_NC, at the same rows) and keys (k_nC)
  // of n tokens from row `begin` on, rotated to their positions and normalised.
  PackedQkv<T> qkv(Index layer) const { return {saved_[layer].qkv_N3C, C_, qkv_width_}; }
  T* q_NC() const { return q_NC_; }
  T* o_NC(Index layer) const { return saved_[layer].o_NC; }
  void rotate(T* k_nC, Index layer, Index begin, Index n, const Exec& ex);

  double flops_linear() const;             // per token and block, forward
  double flops_attention(Index T_) const;  // the same over sequences of T_ tokens: the pairs j <= i
  double flops_again(Index T_) const;      // of what backward computes again

 private:
  struct Params {  // offsets
    Index qkv = 0, q_norm = 0, k_norm = 0, out = 0;
  };
  // What backward needs of a block; with recompute, and without training, all blocks share one.
  struct Saved {
    T *qkv_N3C = nullptr, *o_NC = nullptr;
    float *rstd_N2H = nullptr, *lse_NH = nullptr;
  };
  void project(Index layer, const T* context_NC, const Products<T>& products, Index N, const Exec& ex);
  void rotate_whole(Index layer, const Tokens& tokens, const Exec& ex);
  void attend_whole(Index layer, const Tokens& tokens, const Exec& ex);
  const T* w(Index offset) const { return numbers_.params_T + offset; }
  const float* p(Index offset) const { return numbers_.params + offset; }
  float* g(Index offset) const { return numbers_.grads + offset; }

  const ModelConfig config_;
  const bool again_;  // backward computes the forward pass again instead of finding it stored
  const Index C_, H_, K_, qkv_width_;
  Index positions_ = 0;
  std::vector<Params> params_;
  Numbers<T> numbers_;

  std::vector<Saved> saved_;
  float* rope_TK_ = nullptr;
  T *q_NC_ = nullptr, *k_NC_ = nullptr, *do_NC_ = nullptr;
  PackedQkv<T> dqkv_;
  std::byte* blocks_scratch_ = nullptr;
  float* norm_scratch_ = nullptr;
  const std::int32_t* position_N_ = nullptr;  // of the pass under way
};

extern template class Attention<float>;
extern template class Attention<bf16>;

}  // namespace ddl
