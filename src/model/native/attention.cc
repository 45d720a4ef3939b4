#include "model/native/attention.h"

#include <string>

#include "core/profiler.h"
#include "kernels/attention.h"
#include "kernels/gemm.h"
#include "kernels/rope_qknorm.h"
#include "model/native/products.h"

namespace ddl {

template <class T>
Attention<T>::Attention(const ModelConfig& config)
    : config_(config),
      again_(config.recompute == Recompute::kBlock),
      C_(config.width),
      H_(config.heads),
      K_(config.head_size()),
      qkv_width_(config.qkv_width()) {}

template <class T>
void Attention<T>::add_params(ParamTable& table) {
  const std::string name = fmt::format("transformer.h.{}.attn.", params_.size());
  const Init hidden = Init::normal(config_.hidden_std());
  const Init output = Init::normal(config_.output_std());
  Params p;
  p.qkv = table.add_linear(name + "c_q.weight", C_, C_, hidden);
  table.add_linear(name + "c_k.weight", C_, C_, hidden, ParamTable::kJoined);
  table.add_linear(name + "c_v.weight", C_, C_, hidden, ParamTable::kJoined);
  p.q_norm = table.add_norm(name + "q_rms.weight", K_);
  p.k_norm = table.add_norm(name + "k_rms.weight", K_);
  p.out = table.add_linear(name + "c_proj.weight", C_, C_, output);
  params_.push_back(p);
}

template <class T>
void Attention<T>::plan(Arena& arena, const Room& room) {
  const Index N = room.tokens;
  positions_ = room.positions;
  const bool keep = room.training && !again_;
  saved_.assign(params_.size(), {});
  for (std::size_t i = 0; i < saved_.size(); ++i) {
    if (i > 0 && !keep) {
      saved_[i] = saved_[0];
      continue;
    }
    saved_[i].qkv_N3C = arena.take<T>("attention: q k v", N * qkv_width_);
    saved_[i].o_NC = arena.take<T>("attention: output", N * C_);
    saved_[i].rstd_N2H = arena.take<float>("attention: statistics", N * 2 * H_);
    saved_[i].lse_NH = arena.take<float>("attention: statistics", N * H_);
  }
  rope_TK_ = arena.take<float>("rotary table", positions_ * K_);
  q_NC_ = arena.take<T>("scratch: rotated q k", N * C_);
  if (room.slots > 0) return;  // keys and the blocks of scores are the store's
  k_NC_ = arena.take<T>("scratch: rotated q k", N * C_);
  blocks_scratch_ = arena.take<std::byte>(
      "scratch: attention blocks", static_cast<Index>(attention_scratch_bytes(positions_, K_, room.threads)));
  if (!room.training) return;
  do_NC_ = arena.take<T>("scratch: gradients", N * C_);
  dqkv_ = {arena.take<T>("scratch: gradients", N * qkv_width_), C_, qkv_width_};
  norm_scratch_ = arena.take<float>("scratch: gradients", rope_qknorm_scratch_floats(K_));
}

template <class T>
void Attention<T>::bind(const Numbers<T>& numbers) {
  numbers_ = numbers;
  fill_rope_table(rope_TK_, positions_, K_, config_.rope_base);
}

template <class T>
void Attention<T>::project(Index layer, const T* context_NC, const Products<T>& products, Index N,
                           const Exec& ex) {
  const ProfileScope scope("gemm", ex);
  products.linear(saved_[layer].qkv_N3C, context_NC, params_[layer].qkv, N, qkv_width_, C_, ex);
}

template <class T>
void Attention<T>::rotate_whole(Index layer, const Tokens& tokens, const Exec& ex) {
  const ProfileScope scope("rope + qk-norm", ex);
  const Params& at = params_[layer];
  const Saved& saved = saved_[layer];
  rope_qknorm_fwd<T>(q_NC_, k_NC_, saved.rstd_N2H, saved.qkv_N3C, p(at.q_norm), p(at.k_norm), rope_TK_,
                     nullptr, tokens.count, tokens.sequence_length, H_, K_, ex);
}

template <class T>
void Attention<T>::rotate(T* k_nC, Index layer, Index begin, Index n, const Exec& ex) {
  const Params& at = params_[layer];
  rope_qknorm_fwd<T>(q_NC_ + begin * C_, k_nC, saved_[layer].rstd_N2H, qkv(layer).q(begin), p(at.q_norm),
                     p(at.k_norm), rope_TK_, position_N_ + begin, n, positions_, H_, K_, ex);
}

template <class T>
void Attention<T>::attend_whole(Index layer, const Tokens& tokens, const Exec& ex) {
  rotate_whole(layer, tokens, ex);
  const ProfileScope scope("attention forward", ex);
  const Index T_ = tokens.sequence_length;
  attention_fwd<T>({o_NC(layer), C_}, saved_[layer].lse_NH, blocks_scratch_, {q_NC_, C_}, {k_NC_, C_},
                   {qkv(layer).v(), qkv(layer).stride}, tokens.count / T_, T_, H_, K_, ex);
}

template <class T>
void Attention<T>::forward(Index layer, T* h_NC, const T* context_NC, const Pass<T>& pass, const Exec& ex) {
  position_N_ = pass.position_N;
  project(layer, context_NC, *pass.products, pass.tokens.count, ex);
  if (pass.past) {
    const ProfileScope scope("attention forward", ex);
    pass.past->attend(layer, *this, ex);
  } else {
    attend_whole(layer, pass.tokens, ex);
  }
  const ProfileScope scope("gemm", ex);
  pass.products->linear(h_NC, o_NC(layer), params_[layer].out, pass.tokens.count, C_, C_, ex);
}

template <class T>
void Attention<T>::backward(Index layer, float* dcontext_NC, const T* dh_NC, const T* context_NC,
                            const Tokens& tokens, const Exec& ex) {
  const Params& at = params_[layer];
  const Saved& saved = saved_[layer];
  const Index N = tokens.count, T_ = tokens.sequence_length;
  if (again_) {
    project(layer, context_NC, DenseProducts<T>(numbers_), N, ex);
    attend_whole(layer, tokens, ex);
  } else {
    rotate_whole(layer, tokens, ex);
  }
  {
    const ProfileScope scope("gemm", ex);
    linear_bwd_input<T, T>(do_NC_, Write::kOverwrite, dh_NC, w(at.out), N, C_, C_, ex);
    linear_bwd_weight<T>(g(at.out), dh_NC, saved.o_NC, N, C_, C_, ex);
  }
  const Index stride = dqkv_.stride;
  {
    const ProfileScope scope("attention backward", ex);
    attention_bwd<T>({dqkv_.q(), stride}, {dqkv_.k(), stride}, {dqkv_.v(), stride}, blocks_scratch_,
                     {do_NC_, C_}, {saved.o_NC, C_}, saved.lse_NH, {q_NC_, C_}, {k_NC_, C_},
                     {qkv(layer).v(), stride}, N / T_, T_, H_, K_, ex);
  }
  {
    const ProfileScope scope("rope + qk-norm", ex);
    rope_qknorm_bwd<T>(dqkv_.data, g(at.q_norm), g(at.k_norm), norm_scratch_, dqkv_.q(), stride, dqkv_.k(),
                       stride, saved.qkv_N3C, saved.rstd_N2H, p(at.q_norm), p(at.k_norm), rope_TK_, nullptr,
                       N, T_, H_, K_, ex);
  }
  const ProfileScope scope("gemm", ex);
  linear_bwd_input<T, float>(dcontext_NC, Write::kOverwrite, dqkv_.data, w(at.qkv), N, qkv_width_, C_, ex);
  linear_bwd_weight<T>(g(at.qkv), dqkv_.data, context_NC, N, qkv_width_, C_, ex);
}

template <class T>
double Attention<T>::flops_linear() const {
  return 2 * 4 * static_cast<double>(C_) * static_cast<double>(C_);
}

template <class T>
double Attention<T>::flops_again(Index T_) const {
  if (!again_) return 0;
  return 2 * static_cast<double>(qkv_width_) * static_cast<double>(C_) + flops_attention(T_);
}

template <class T>
double Attention<T>::flops_attention(Index T_) const {
  return 4 * static_cast<double>(C_) * static_cast<double>(T_ + 1) / 2;  // two products
}

template class Attention<float>;
template class Attention<bf16>;

}  // namespace ddl
