#include "model/transformer.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "core/profiler.h"
#include "kernels/attention.h"
#include "kernels/embedding.h"
#include "kernels/gemm.h"
#include "kernels/rope_qknorm.h"
#include "kernels/softmax_xent.h"
#include "kernels/swiglu.h"

namespace ddl {
namespace {

constexpr std::size_t kLogitsBytes = 96u << 20;  // of one chunk of the head

}  // namespace

template <class T>
Transformer<T>::Transformer(const ModelConfig& config, BatchShape shape, Mode mode, int threads)
    : config_(config),
      shape_(shape),
      training_(mode == Mode::kTrain),
      threads_(threads),
      N_(shape.N()),
      C_(config.width),
      F_(config.mlp_width()),
      H_(config.heads),
      K_(config.head_size()),
      V_(config.vocab),
      S_(config.sublayers()),
      head_rows_(std::clamp<Index>(static_cast<Index>(kLogitsBytes / sizeof(float)) / V_, 1, N_)),
      residual_(make_residual<T>(config, shape)),
      layout_(add_transformer_params(table_, config)) {
  residual_->add_params(table_);
}

template <class T>
void Transformer<T>::plan_memory(Arena& arena) {
  const bool copies = std::is_same_v<T, bf16>;
  params_ = arena.take<float>("parameters", table_.floats());
  if constexpr (copies)
    params_T_ = arena.take<T>("parameters, bf16 copy", table_.floats());
  else
    params_T_ = params_;
  if (training_) grads_ = arena.take<float>("gradients", table_.floats());

  rope_TK_ = arena.take<float>("rotary table", shape_.T * K_);
  x_NC_ = arena.take<float>("embedding", N_ * C_);

  // Kept for every sublayer when training; one of each serves all otherwise.
  context_.assign(static_cast<std::size_t>(S_ + 1), nullptr);
  h_.assign(static_cast<std::size_t>(S_), nullptr);
  for (Index s = 0; s <= S_; ++s)
    context_[s] = training_ || s == 0 ? arena.take<T>("sublayer inputs", N_ * C_) : context_[0];
  for (Index s = 0; s < S_; ++s)
    h_[s] = training_ || s == 0 ? arena.take<T>("sublayer outputs", N_ * C_) : h_[0];

  const bool keep_mlp = training_ && config_.recompute == "none";
  const bool keep_attention = training_ && config_.recompute != "block";
  saved_.assign(static_cast<std::size_t>(config_.layers), {});
  for (Index i = 0; i < config_.layers; ++i) {
    LayerSaved& saved = saved_[i];
    if (i == 0 || keep_attention) {
      saved.qkv_N3C = arena.take<T>("attention: q k v", N_ * 3 * C_);
      saved.o_NC = arena.take<T>("attention: output", N_ * C_);
      saved.qk_rstd_N2H = arena.take<float>("attention: statistics", N_ * 2 * H_);
      saved.lse_NH = arena.take<float>("attention: statistics", N_ * H_);
    } else {
      saved = saved_[0];
    }
    saved.gate_up_N2F =
        i == 0 || keep_mlp ? arena.take<T>("MLP: gate and up", N_ * 2 * F_) : saved_[0].gate_up_N2F;
  }
  q_NC_ = arena.take<T>("scratch: rotated q k", N_ * C_);
  k_NC_ = arena.take<T>("scratch: rotated q k", N_ * C_);
  hidden_NF_ = arena.take<T>("scratch: MLP hidden", N_ * F_);
  logits_RV_ = arena.take<float>("scratch: logits of a chunk", head_rows_ * V_);
  loss_N_ = arena.take<float>("scratch: losses", N_);
  attention_scratch_ = arena.take<std::byte>(
      "scratch: attention blocks", static_cast<Index>(attention_scratch_bytes(shape_.T, K_, threads_)));
  residual_->plan(arena, training_);
  if (!training_) return;
  if constexpr (copies)
    dlogits_RV_ = arena.take<T>("scratch: logits of a chunk", head_rows_ * V_);
  else
    dlogits_RV_ = logits_RV_;
  dcontext_NC_ = arena.take<float>("scratch: gradients", N_ * C_);
  dx_NC_ = arena.take<float>("scratch: gradients", N_ * C_);
  dh_NC_ = arena.take<T>("scratch: gradients", N_ * C_);
  do_NC_ = arena.take<T>("scratch: gradients", N_ * C_);
  dqkv_N3C_ = arena.take<T>("scratch: gradients", N_ * 3 * C_);
  dhidden_NF_ = arena.take<T>("scratch: gradients", N_ * F_);
  dgate_up_N2F_ = arena.take<T>("scratch: gradients", N_ * 2 * F_);
  norm_scratch_ = arena.take<float>("scratch: gradients", rope_qknorm_scratch_floats(K_));
}

template <class T>
void Transformer<T>::allocate(std::uint64_t seed, const Exec& ex) {
  Arena measured = Arena::measuring();
  plan_memory(measured);
  arena_ = Arena::owning(measured.used_bytes());
  plan_memory(arena_);
  residual_->bind(params_, params_T_, grads_);
  fill_rope_table(rope_TK_, shape_.T, K_);
  table_.initialise(params_, seed, ex);
  params_changed(ex);
}

template <class T>
ModelPlan Transformer<T>::plan() const {
  Transformer<T> twin(config_, shape_, training_ ? Mode::kTrain : Mode::kInfer, threads_);
  Arena arena = Arena::measuring();
  twin.plan_memory(arena);
  ModelPlan plan;
  plan.table = table_;
  plan.memory = arena.ledger();
  plan.total_bytes = arena.used_bytes();
  const double C = static_cast<double>(C_), F = static_cast<double>(F_),
               L = static_cast<double>(config_.layers);
  plan.forward.linear = L * 2 * (4 * C * C + 3 * C * F);
  plan.forward.attention =
      L * 4 * C * static_cast<double>(shape_.T + 1) / 2;  // two products over the pairs j <= i
  plan.forward.head = 2 * C * static_cast<double>(V_);
  plan.forward.residual = residual_->flops_forward();
  plan.backward.linear = 2 * plan.forward.linear;
  plan.backward.attention = 2.5 * plan.forward.attention;  // five products
  plan.backward.head = 2 * plan.forward.head;
  plan.backward.residual = residual_->flops_backward();
  // As mlp_backward and attention_backward do: the input products again, and attention itself.
  if (config_.recompute != "none") plan.recomputed += L * 2 * 2 * C * F;
  if (config_.recompute == "block") plan.recomputed += L * 2 * 3 * C * C + plan.forward.attention;
  plan.cache_bytes_per_token = 2 * config_.layers * C_ * static_cast<Index>(sizeof(T));
  plan.cache_bytes_per_sequence = residual_->cache_floats() * static_cast<Index>(sizeof(float));
  return plan;
}

template <class T>
bf16* Transformer<T>::bf16_copy() {
  if constexpr (std::is_same_v<T, bf16>)
    return params_T_;
  else
    return nullptr;
}

template <class T>
void Transformer<T>::params_changed(const Exec& ex) {
  if constexpr (std::is_same_v<T, bf16>)
    parallel_chunks(table_.floats(), 1 << 16, ex, [&](Index begin, Index end) {
      for (Index i = begin; i < end; ++i) params_T_[i] = to_bf16(params_[i]);
    });
}

// --- forward
// ----------------------------------------------------------------------------------------------------------

template <class T>
void Transformer<T>::forward(const BatchView& batch, const Exec& ex) {
  embedding_fwd<float, float>(x_NC_, params_ + layout_.wte, batch.token_BT, N_, V_, C_, ex);
  residual_->open(context_[0], x_NC_, ex);
  for (Index s = 0; s < S_; ++s) {
    if (s % 2 == 0)
      attention_forward(s / 2, h_[s], context_[s], ex);
    else
      mlp_forward(s / 2, h_[s], context_[s], ex);
    const ProfileScope scope("residual forward", ex);
    residual_->advance(s, context_[s + 1], h_[s], ex);
  }
}

// The part of attention that backward with recompute runs again: q k v, and the rotated, normalised q and k.
template <class T>
void Transformer<T>::attention_inputs(Index layer, const T* context_NC, const Exec& ex) {
  const LayerParams& p = layout_.layers[layer];
  LayerSaved& saved = saved_[layer];
  {
    const ProfileScope scope("gemm", ex);
    linear_fwd<T, T>(saved.qkv_N3C, context_NC, w(p.qkv), N_, 3 * C_, C_, ex);
  }
  const ProfileScope scope("rope + qk-norm", ex);
  rope_qknorm_fwd<T>(q_NC_, k_NC_, saved.qk_rstd_N2H, saved.qkv_N3C, params_ + p.q_norm, params_ + p.k_norm,
                     rope_TK_, nullptr, N_, shape_.T, H_, K_, ex);
}

template <class T>
void Transformer<T>::attention_forward(Index layer, T* h_NC, const T* context_NC, const Exec& ex) {
  LayerSaved& saved = saved_[layer];
  attention_inputs(layer, context_NC, ex);
  {
    const ProfileScope scope("attention forward", ex);
    attention_fwd<T>({saved.o_NC, C_}, saved.lse_NH, attention_scratch_, {q_NC_, C_}, {k_NC_, C_},
                     {saved.qkv_N3C + 2 * C_, 3 * C_}, shape_.B, shape_.T, H_, K_, ex);
  }
  if (!h_NC) return;
  const ProfileScope scope("gemm", ex);
  linear_fwd<T, T>(h_NC, saved.o_NC, w(layout_.layers[layer].attn_out), N_, C_, C_, ex);
}

template <class T>
void Transformer<T>::mlp_forward(Index layer, T* h_NC, const T* context_NC, const Exec& ex) {
  const LayerParams& p = layout_.layers[layer];
  LayerSaved& saved = saved_[layer];
  {
    const ProfileScope scope("gemm", ex);
    linear_fwd<T, T>(saved.gate_up_N2F, context_NC, w(p.mlp_in), N_, 2 * F_, C_, ex);
  }
  if (!h_NC) return;
  {
    const ProfileScope scope("swiglu", ex);
    swiglu_fwd<T>(hidden_NF_, saved.gate_up_N2F, N_, F_, ex);
  }
  const ProfileScope scope("gemm", ex);
  linear_fwd<T, T>(h_NC, hidden_NF_, w(p.mlp_out), N_, C_, F_, ex);
}

// --- head
// -------------------------------------------------------------------------------------------------------------

template <class T>
double Transformer<T>::head(const BatchView& batch, const TokenScores& scores, double grad_scale,
                            const Exec& ex) {
  const T* context_NC = context_[S_];
  const std::int32_t* target = batch.target_BT;
  const Index predicted = std::count_if(target, target + N_, [](std::int32_t t) { return t >= 0; });
  if (predicted == 0) throw UserError("a batch of {} tokens has no target to predict", N_);
  const float logit_scale = config_.logit_scale();
  const float scale = static_cast<float>(grad_scale / static_cast<double>(predicted));
  float* loss_N = scores.loss_N ? scores.loss_N : loss_N_;
  for (Index begin = 0; begin < N_; begin += head_rows_) {
    const Index rows = std::min(head_rows_, N_ - begin);
    const T* chunk_RC = context_NC + begin * C_;
    {
      const ProfileScope scope("gemm head", ex);
      linear_fwd<T, float>(logits_RV_, chunk_RC, w(layout_.wte), rows, V_, C_, ex);
    }
    std::uint8_t* correct_N = scores.correct_N ? scores.correct_N + begin : nullptr;
    {
      const ProfileScope scope("softmax + cross-entropy", ex);
      if (grad_scale == 0)
        softmax_xent_fwd(loss_N + begin, correct_N, logits_RV_, target + begin, logit_scale, rows, V_, ex);
      else
        softmax_xent_fwd_bwd<T>(dlogits_RV_, loss_N + begin, correct_N, logits_RV_, target + begin,
                                logit_scale, scale, rows, V_, ex);
    }
    if (grad_scale == 0) continue;
    const ProfileScope scope("gemm head", ex);
    linear_bwd_input<T, float>(dcontext_NC_ + begin * C_, Write::kOverwrite, dlogits_RV_, w(layout_.wte),
                               rows, V_, C_, ex);
    linear_bwd_weight<T>(g(layout_.wte), dlogits_RV_, chunk_RC, rows, V_, C_, ex);
  }
  double sum = 0;
  for (Index n = 0; n < N_; ++n) sum += loss_N[n];
  return sum / static_cast<double>(predicted);
}

// --- backward
// ---------------------------------------------------------------------------------------------------------

template <class T>
void Transformer<T>::attention_backward(Index layer, float* dcontext_NC, const T* dh_NC, const T* context_NC,
                                        const Exec& ex) {
  const LayerParams& p = layout_.layers[layer];
  LayerSaved& saved = saved_[layer];
  if (config_.recompute == "block") {
    attention_forward(layer, nullptr, context_NC, ex);
  } else {
    const ProfileScope scope("rope + qk-norm", ex);
    rope_qknorm_fwd<T>(q_NC_, k_NC_, saved.qk_rstd_N2H, saved.qkv_N3C, params_ + p.q_norm, params_ + p.k_norm,
                       rope_TK_, nullptr, N_, shape_.T, H_, K_, ex);
  }
  {
    const ProfileScope scope("gemm", ex);
    linear_bwd_input<T, T>(do_NC_, Write::kOverwrite, dh_NC, w(p.attn_out), N_, C_, C_, ex);
    linear_bwd_weight<T>(g(p.attn_out), dh_NC, saved.o_NC, N_, C_, C_, ex);
  }
  {
    const ProfileScope scope("attention backward", ex);
    attention_bwd<T>({dqkv_N3C_, 3 * C_}, {dqkv_N3C_ + C_, 3 * C_}, {dqkv_N3C_ + 2 * C_, 3 * C_},
                     attention_scratch_, {do_NC_, C_}, {saved.o_NC, C_}, saved.lse_NH, {q_NC_, C_},
                     {k_NC_, C_}, {saved.qkv_N3C + 2 * C_, 3 * C_}, shape_.B, shape_.T, H_, K_, ex);
  }
  {
    const ProfileScope scope("rope + qk-norm", ex);
    rope_qknorm_bwd<T>(dqkv_N3C_, g(p.q_norm), g(p.k_norm), norm_scratch_, dqkv_N3C_, 3 * C_, dqkv_N3C_ + C_,
                       3 * C_, saved.qkv_N3C, saved.qk_rstd_N2H, params_ + p.q_norm, params_ + p.k_norm,
                       rope_TK_, nullptr, N_, shape_.T, H_, K_, ex);
  }
  const ProfileScope scope("gemm", ex);
  linear_bwd_input<T, float>(dcontext_NC, Write::kOverwrite, dqkv_N3C_, w(p.qkv), N_, 3 * C_, C_, ex);
  linear_bwd_weight<T>(g(p.qkv), dqkv_N3C_, context_NC, N_, 3 * C_, C_, ex);
}

template <class T>
void Transformer<T>::mlp_backward(Index layer, float* dcontext_NC, const T* dh_NC, const T* context_NC,
                                  const Exec& ex) {
  const LayerParams& p = layout_.layers[layer];
  LayerSaved& saved = saved_[layer];
  if (config_.recompute != "none") mlp_forward(layer, nullptr, context_NC, ex);
  {
    const ProfileScope scope("gemm", ex);
    linear_bwd_input<T, T>(dhidden_NF_, Write::kOverwrite, dh_NC, w(p.mlp_out), N_, C_, F_, ex);
  }
  {
    const ProfileScope scope("swiglu", ex);
    swiglu_bwd<T>(dgate_up_N2F_, hidden_NF_, dhidden_NF_, saved.gate_up_N2F, N_, F_, ex);
  }
  const ProfileScope scope("gemm", ex);
  linear_bwd_weight<T>(g(p.mlp_out), dh_NC, hidden_NF_, N_, C_, F_, ex);
  linear_bwd_input<T, float>(dcontext_NC, Write::kOverwrite, dgate_up_N2F_, w(p.mlp_in), N_, 2 * F_, C_, ex);
  linear_bwd_weight<T>(g(p.mlp_in), dgate_up_N2F_, context_NC, N_, 2 * F_, C_, ex);
}

template <class T>
void Transformer<T>::backward(const BatchView& batch, const Exec& ex) {
  for (Index s = S_ - 1; s >= 0; --s) {
    {
      const ProfileScope scope("residual backward", ex);
      residual_->retreat(s, dh_NC_, dcontext_NC_, context_[s + 1], h_[s], ex);
    }
    if (s % 2 == 0)
      attention_backward(s / 2, dcontext_NC_, dh_NC_, context_[s], ex);
    else
      mlp_backward(s / 2, dcontext_NC_, dh_NC_, context_[s], ex);
  }
  const ProfileScope scope("embedding backward", ex);
  residual_->close(dx_NC_, dcontext_NC_, context_[0], x_NC_, ex);
  embedding_bwd<float>(g(layout_.wte), dx_NC_, batch.token_BT, N_, V_, C_, ex);
}

template <class T>
double Transformer<T>::loss(const BatchView& batch, const TokenScores& scores, const Exec& ex) {
  forward(batch, ex);
  return head(batch, scores, 0, ex);
}

template <class T>
double Transformer<T>::loss_and_grad(const BatchView& batch, double grad_scale, const Exec& ex) {
  DDL_CHECK(training_ && grad_scale != 0, "grad_scale {}", grad_scale);
  forward(batch, ex);
  const double mean = head(batch, {}, grad_scale, ex);
  backward(batch, ex);
  return mean;
}

template class Transformer<float>;
template class Transformer<bf16>;

}  // namespace ddl
