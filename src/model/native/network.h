// The pre-norm decoder with an exchangeable residual rule: its parts, and the one loop over sublayers that
// training, decoding and scoring share. T is the type of activations and GEMM inputs.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/arena.h"
#include "model/config.h"
#include "model/native/attention.h"
#include "model/native/head.h"
#include "model/native/mlp.h"
#include "model/native/pass.h"
#include "model/params.h"
#include "model/residual/rule.h"
#include "model/weights.h"

namespace ddl {

constexpr ParamTable::Matrices matrices_of(WeightFormat format) {
  return format == WeightFormat::kF32 ? ParamTable::Matrices::kInArray : ParamTable::Matrices::kPacked;
}

template <class T>
class Network {
 public:
  explicit Network(const ModelConfig& config, ParamTable::Matrices matrices = ParamTable::Matrices::kInArray);

  const ModelConfig& config() const { return config_; }
  const ParamTable& table() const { return table_; }

  // plan() runs twice: measuring, then for real; bind() after that. grads is null without training.
  void plan(Arena& arena, const Room& room);
  void bind(const Weights& weights, float* grads);

  // What the head reads of every token: context_NC after the last sublayer. Lives until the next pass.
  const T* forward(const std::int32_t* token_N, const Pass<T>& pass, const Exec& ex);
  // The gradients of everything below the head, from that of what forward returned. dcontext_NC is changed. `ready`
  // is told which are final: those of a layer after its attention, the others (head and rule) at the end.
  void backward(float* dcontext_NC, const std::int32_t* token_N, const Tokens& tokens,
                FunctionRef<void(Index begin, Index end)> ready, const Exec& ex);

  const Numbers<T>& numbers() const { return numbers_; }
  Attention<T>& attention() { return attention_; }
  Mlp<T>& mlp() { return mlp_; }
  Head<T>& head() { return head_; }
  ResidualRule<T>& residual() { return *residual_; }
  const ResidualRule<T>& residual() const { return *residual_; }

 private:
  const ModelConfig config_;
  const Index C_, S_;
  ParamTable table_;
  Numbers<T> numbers_;
  std::vector<Index> layer_begin_;  // in the table, in floats; one more: where the last layer ends
  Head<T> head_;
  Attention<T> attention_;
  Mlp<T> mlp_;
  std::unique_ptr<ResidualRule<T>> residual_;

  float *x_NC_ = nullptr, *dx_NC_ = nullptr;  // embedding
  std::vector<T*> context_, h_;               // of S + 1 and S sublayers; without training all the same
  T* dh_NC_ = nullptr;
};

extern template class Network<float>;
extern template class Network<bf16>;

}  // namespace ddl
