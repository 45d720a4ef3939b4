// The MLP sublayers of all blocks:  [a | b] = W_in context      h = W_out (silu(a) * b)
#pragma once

#include <vector>

#include "core/arena.h"
#include "core/bf16.h"
#include "model/config.h"
#include "model/native/pass.h"
#include "model/params.h"
#include "model/part.h"

namespace ddl {

template <class T>
class Mlp {
 public:
  explicit Mlp(const ModelConfig& config);
  void add_params(ParamTable& table);  // of the next block
  void plan(Arena& arena, const Room& room);
  void bind(const Numbers<T>& numbers) { numbers_ = numbers; }

  void forward(Index layer, T* h_NC, const T* context_NC, const Pass<T>& pass, const Exec& ex);
  // dcontext_NC overwrites.
  void backward(Index layer, float* dcontext_NC, const T* dh_NC, const T* context_NC, const Tokens& tokens,
                const Exec& ex);

  double flops_linear() const;  // per token and block, forward
  double flops_again() const;   // of what backward computes again

 private:
  struct Params {  // offsets
    Index in = 0, out = 0;
  };
  void project(Index layer, const T* context_NC, const Products<T>& products, Index N, const Exec& ex);
  const T* w(Index offset) const { return numbers_.params_T + offset; }
  float* g(Index offset) const { return numbers_.grads + offset; }

  const ModelConfig config_;
  const bool again_;  // backward computes the input product again instead of finding it stored
  const Index C_, F_, gate_up_width_;
  std::vector<Params> params_;
  Numbers<T> numbers_;
  std::vector<T*> gate_up_N2F_;  // by block; with recompute, and without training, all the same
  T *hidden_NF_ = nullptr, *dhidden_NF_ = nullptr, *dgate_up_N2F_ = nullptr;
};

extern template class Mlp<float>;
extern template class Mlp<bf16>;

}  // namespace ddl
