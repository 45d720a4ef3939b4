#include "model/native/mlp.h"

#include <string>

#include "core/profiler.h"
#include "kernels/gemm.h"
#include "kernels/swiglu.h"
#include "model/native/products.h"

namespace ddl {

template <class T>
Mlp<T>::Mlp(const ModelConfig& config)
    : config_(config),
      again_(config.recompute != Recompute::kNone),
      C_(config.width),
      F_(config.mlp_width()),
      gate_up_width_(config.gate_up_width()) {}

template <class T>
void Mlp<T>::add_params(ParamTable& table) {
  const std::string name = fmt::format("transformer.h.{}.mlp.", params_.size());
  const Init hidden = Init::normal(config_.hidden_std());
  const Init output = Init::normal(config_.output_std());
  Params p;
  p.in = table.add_linear(name + "c_fc1.weight", F_, C_, hidden);
  table.add_linear(name + "c_fc2.weight", F_, C_, hidden, ParamTable::kJoined);
  p.out = table.add_linear(name + "c_proj.weight", C_, F_, output);
  params_.push_back(p);
}

template <class T>
void Mlp<T>::plan(Arena& arena, const Room& room) {
  const Index N = room.tokens;
  const bool keep = room.training && !again_;
  gate_up_N2F_.assign(params_.size(), nullptr);
  for (std::size_t i = 0; i < gate_up_N2F_.size(); ++i)
    gate_up_N2F_[i] =
        i == 0 || keep ? arena.take<T>("MLP: gate and up", N * gate_up_width_) : gate_up_N2F_[0];
  hidden_NF_ = arena.take<T>("scratch: MLP hidden", N * F_);
  if (!room.training) return;
  dhidden_NF_ = arena.take<T>("scratch: gradients", N * F_);
  dgate_up_N2F_ = arena.take<T>("scratch: gradients", N * gate_up_width_);
}

template <class T>
void Mlp<T>::project(Index layer, const T* context_NC, const Products<T>& products, Index N, const Exec& ex) {
  const ProfileScope scope("gemm", ex);
  products.linear(gate_up_N2F_[layer], context_NC, params_[layer].in, N, gate_up_width_, C_, ex);
}

template <class T>
void Mlp<T>::forward(Index layer, T* h_NC, const T* context_NC, const Pass<T>& pass, const Exec& ex) {
  project(layer, context_NC, *pass.products, pass.tokens.count, ex);
  {
    const ProfileScope scope("swiglu", ex);
    swiglu_fwd<T>(hidden_NF_, gate_up_N2F_[layer], pass.tokens.count, F_, ex);
  }
  const ProfileScope scope("gemm", ex);
  pass.products->linear(h_NC, hidden_NF_, params_[layer].out, pass.tokens.count, C_, F_, ex);
}

template <class T>
void Mlp<T>::backward(Index layer, float* dcontext_NC, const T* dh_NC, const T* context_NC,
                      const Tokens& tokens, const Exec& ex) {
  const Params& at = params_[layer];
  const Index N = tokens.count;
  if (again_) project(layer, context_NC, DenseProducts<T>(numbers_), N, ex);
  {
    const ProfileScope scope("gemm", ex);
    linear_bwd_input<T, T>(dhidden_NF_, Write::kOverwrite, dh_NC, w(at.out), N, C_, F_, ex);
  }
  {
    const ProfileScope scope("swiglu", ex);
    swiglu_bwd<T>(dgate_up_N2F_, hidden_NF_, dhidden_NF_, gate_up_N2F_[layer], N, F_, ex);
  }
  const ProfileScope scope("gemm", ex);
  linear_bwd_weight<T>(g(at.out), dh_NC, hidden_NF_, N, C_, F_, ex);
  linear_bwd_input<T, float>(dcontext_NC, Write::kOverwrite, dgate_up_N2F_, w(at.in), N, gate_up_width_, C_,
                             ex);
  linear_bwd_weight<T>(g(at.in), dgate_up_N2F_, context_NC, N, gate_up_width_, C_, ex);
}

template <class T>
double Mlp<T>::flops_linear() const {
  return 2 * 3 * static_cast<double>(C_) * static_cast<double>(F_);
}

template <class T>
double Mlp<T>::flops_again() const {
  return again_ ? 2 * static_cast<double>(gate_up_width_) * static_cast<double>(C_) : 0;
}

template class Mlp<float>;
template class Mlp<bf16>;

}  // namespace ddl
