// Where tokens enter and leave the network: the embedding and the head, which share one matrix wte.
//   x = wte[token]      logits = logit_scale * wte context      loss = mean over targets of -log softmax(logits)
#pragma once

#include <cstdint>

#include "core/arena.h"
#include "model/config.h"
#include "model/native/pass.h"
#include "model/params.h"
#include "model/part.h"
#include "model/trainable.h"

namespace ddl {

// The head works on chunks of rows, so that the logits of a whole batch never exist: as many rows as fit into
// these bytes of f32 logits, and at most `rows`.
inline constexpr std::size_t kTrainingLogitsBytes = 96u << 20;
inline constexpr std::size_t kDecodingLogitsBytes = 16u << 20;
Index head_chunk_rows(Index rows, Index vocab, std::size_t logits_bytes = kTrainingLogitsBytes);

template <class T>
class Head {
 public:
  explicit Head(const ModelConfig& config);
  void add_params(ParamTable& table);
  void plan(Arena& arena, const Room& room);
  void bind(const Numbers<T>& numbers) { numbers_ = numbers; }

  void embed(float* x_NC, const std::int32_t* token_N, Index N, const Products<T>& products,
             const Exec& ex) const;
  void embed_backward(const float* dx_NC, const std::int32_t* token_N, Index N, const Exec& ex) const;

  // Mean loss over the N rows' targets. With grad_scale other than 0 the backward pass, too: dcontext_NC
  // overwrites, scaled by it.
  double loss(const T* context_NC, const std::int32_t* target_N, const TokenScores& scores, double grad_scale,
              float* dcontext_NC, Index N, const Exec& ex);

  // For decoding and scoring: logits of single rows, not yet scaled by logit_scale().
  void logits(float* logits_RV, const T* context_RC, Index rows, const Products<T>& products,
              const Exec& ex) const;

  double flops() const;  // per token, forward

 private:
  const ModelConfig config_;
  const Index C_, V_;
  Index wte_ = 0, chunk_rows_ = 0;
  Numbers<T> numbers_;
  float *logits_RV_ = nullptr, *loss_N_ = nullptr;
  T* dlogits_RV_ = nullptr;  // logits_RV_ itself for float
};

extern template class Head<float>;
extern template class Head<bf16>;

}  // namespace ddl
