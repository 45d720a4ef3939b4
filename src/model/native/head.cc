#include "model/native/head.h"

#include <algorithm>
#include <type_traits>

#include "core/error.h"
#include "core/profiler.h"
#include "kernels/embedding.h"
#include "kernels/gemm.h"
#include "kernels/softmax_xent.h"
#include "model/native/products.h"

namespace ddl {

Index head_chunk_rows(Index rows, Index vocab, std::size_t logits_bytes) {
  return std::clamp<Index>(static_cast<Index>(logits_bytes / sizeof(float)) / vocab, 1, rows);
}

template <class T>
Head<T>::Head(const ModelConfig& config) : config_(config), C_(config.width), V_(config.vocab) {}

template <class T>
void Head<T>::add_params(ParamTable& table) {
  wte_ = table.add_embedding("transformer.wte.weight", V_, C_, Init::normal(config_.embedding_start_std()));
}

template <class T>
void Head<T>::plan(Arena& arena, const Room& room) {
  if (room.slots > 0) return;  // decoders and scorers bring their own rows of logits
  chunk_rows_ = head_chunk_rows(room.tokens, V_);
  logits_RV_ = arena.take<float>("scratch: logits of a chunk", chunk_rows_ * V_);
  loss_N_ = arena.take<float>("scratch: losses", room.tokens);
  if (!room.training) return;
  if constexpr (std::is_same_v<T, float>)
    dlogits_RV_ = logits_RV_;
  else
    dlogits_RV_ = arena.take<T>("scratch: logits of a chunk", chunk_rows_ * V_);
}

template <class T>
void Head<T>::embed(float* x_NC, const std::int32_t* token_N, Index N, const Products<T>& products,
                    const Exec& ex) const {
  products.embed(x_NC, token_N, wte_, N, V_, C_, ex);
}

template <class T>
void Head<T>::embed_backward(const float* dx_NC, const std::int32_t* token_N, Index N, const Exec& ex) const {
  embedding_bwd<float>(numbers_.grads + wte_, dx_NC, token_N, N, V_, C_, ex);
}

template <class T>
double Head<T>::loss(const T* context_NC, const std::int32_t* target_N, const TokenScores& scores,
                     double grad_scale, float* dcontext_NC, Index N, const Exec& ex) {
  const Index predicted = std::count_if(target_N, target_N + N, [](std::int32_t t) { return t >= 0; });
  if (predicted == 0) throw UserError("a batch of {} tokens has no target to predict", N);
  const float logit_scale = config_.logit_scale();
  const float scale = static_cast<float>(grad_scale / static_cast<double>(predicted));
  float* loss_N = scores.loss_N ? scores.loss_N : loss_N_;
  for (Index begin = 0; begin < N; begin += chunk_rows_) {
    const Index rows = std::min(chunk_rows_, N - begin);
    const T* chunk_RC = context_NC + begin * C_;
    logits(logits_RV_, chunk_RC, rows, DenseProducts<T>(numbers_), ex);
    std::uint8_t* correct_N = scores.correct_N ? scores.correct_N + begin : nullptr;
    {
      const ProfileScope scope("softmax + cross-entropy", ex);
      if (grad_scale == 0)
        softmax_xent_fwd(loss_N + begin, correct_N, logits_RV_, target_N + begin, logit_scale, rows, V_, ex);
      else
        softmax_xent_fwd_bwd<T>(dlogits_RV_, loss_N + begin, correct_N, logits_RV_, target_N + begin,
                                logit_scale, scale, rows, V_, ex);
    }
    if (grad_scale == 0) continue;
    const ProfileScope scope("gemm head", ex);
    linear_bwd_input<T, float>(dcontext_NC + begin * C_, Write::kOverwrite, dlogits_RV_,
                               numbers_.params_T + wte_, rows, V_, C_, ex);
    linear_bwd_weight<T>(numbers_.grads + wte_, dlogits_RV_, chunk_RC, rows, V_, C_, ex);
  }
  double sum = 0;
  for (Index n = 0; n < N; ++n) sum += loss_N[n];
  return sum / static_cast<double>(predicted);
}

template <class T>
void Head<T>::logits(float* logits_RV, const T* context_RC, Index rows, const Products<T>& products,
                     const Exec& ex) const {
  const ProfileScope scope("gemm head", ex);
  products.logits(logits_RV, context_RC, wte_, rows, V_, C_, ex);
}

template <class T>
double Head<T>::flops() const {
  return 2 * static_cast<double>(C_) * static_cast<double>(V_);
}

template class Head<float>;
template class Head<bf16>;

}  // namespace ddl
