#include "torch/sublayers.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/where.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "kernels/rope_qknorm.h"
#include "model/native/head.h"
#include "torch/kernel_sublayers.h"

namespace ddl {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

// A sublayer of which only the input is kept: backward computes it again.
struct Recomputed : torch::autograd::Function<Recomputed> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, std::int64_t sublayers,
                            std::int64_t s) {
    context->saved_data["sublayers"] = sublayers;
    context->saved_data["s"] = s;
    context->save_for_backward({x});
    return run(context, x);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    at::Tensor x = context->get_saved_variables()[0].detach();
    x.requires_grad_(true);
    const at::AutoGradMode with_graph(true);
    run(context, x).backward(gradients[0]);
    return {x.grad(), Variable(), Variable()};
  }
  static at::Tensor run(AutogradContext* context, const at::Tensor& x) {
    const auto& sublayers = *reinterpret_cast<const Sublayers*>(context->saved_data["sublayers"].toInt());
    const Index s = context->saved_data["s"].toInt();
    return s % 2 == 0 ? sublayers.attention(s / 2, x) : sublayers.mlp(s / 2, x);
  }
};

}  // namespace

Sublayers::Sublayers(const ModelConfig& config, FlatParameters& parameters, at::ScalarType activations,
                     Index positions, const cuda::Kernels* kernels)
    : config_(config), activations_(activations), kernels_(kernels) {
  wte_ = parameters.leaf("transformer.wte.weight");
  wte_gradient_ = wte_.grad();
  // Weights that stay as they are need rounding only once.
  const auto matrix = [&](const at::Tensor& w) { return parameters.trains() ? w : w.to(activations); };
  head_ = matrix(wte_);
  const Index K = config.head_size();
  for (Index i = 0; i < config.layers; ++i) {
    const std::string attn = fmt::format("transformer.h.{}.attn.", i),
                      mlp = fmt::format("transformer.h.{}.mlp.", i);
    layers_.push_back(
        {.qkv = matrix(parameters.leaf_of_joined(attn + "c_q.weight", config.qkv_width())),
         .q_norm = parameters.leaf(attn + "q_rms.weight"),
         .k_norm = parameters.leaf(attn + "k_rms.weight"),
         .out = matrix(parameters.leaf(attn + "c_proj.weight")),
         .gate_up = matrix(parameters.leaf_of_joined(mlp + "c_fc1.weight", config.gate_up_width())),
         .down = matrix(parameters.leaf(mlp + "c_proj.weight"))});
  }
  at::Tensor table = at::empty({positions, K}, at::kFloat);
  fill_rope_table(static_cast<float*>(table.data_ptr()), positions, K, config.rope_base);
  rope_TK_ = table.to(parameters.device());
}

at::Tensor Sublayers::linear(const at::Tensor& x, const at::Tensor& w) const {
  return at::linear(x, w.to(activations_));
}

at::Tensor Sublayers::embed(const at::Tensor& token_BT) const { return at::embedding(wte_, token_BT); }

at::Tensor Sublayers::rope_at(const at::Tensor& position_N) const {
  return rope_TK_.index_select(0, position_N);
}

at::Tensor Sublayers::logits(const at::Tensor& context_RC) const {
  return linear(context_RC, head_).to(at::kFloat);
}

at::Tensor Sublayers::forward(Index s, const at::Tensor& context_BTC, const Continued* continued) const {
  const Recompute recompute = config_.recompute;
  const bool again = recompute == Recompute::kBlock || (recompute == Recompute::kMlp && s % 2 == 1);
  if (again && at::GradMode::is_enabled())
    return Recomputed::apply(context_BTC, reinterpret_cast<std::int64_t>(this), static_cast<std::int64_t>(s));
  return s % 2 == 0 ? attention(s / 2, context_BTC, continued) : mlp(s / 2, context_BTC);
}

// RMSNorm(rope(x)), as kernels/rope_qknorm.h has it, in f32.
at::Tensor Sublayers::rotated_and_normed(const at::Tensor& x_BTHK, const at::Tensor& w_K,
                                         const at::Tensor& rope_TK) const {
  const std::int64_t K = x_BTHK.size(3), half = K / 2;
  const at::Tensor table = rope_TK.unsqueeze(1), x = x_BTHK.to(at::kFloat);
  const at::Tensor cos = table.narrow(-1, 0, half), sin = table.narrow(-1, half, half);
  const at::Tensor a = x.narrow(-1, 0, half), b = x.narrow(-1, half, half);
  const at::Tensor r = at::cat({a * cos - b * sin, a * sin + b * cos}, -1);
  return at::rms_norm(r, {K}, w_K, double{kQkNormEps}).to(activations_);
}

at::Tensor Sublayers::attention(Index layer, const at::Tensor& context_BTC,
                                const Continued* continued) const {
  const Layer& w = layers_[layer];
  const std::int64_t B = context_BTC.size(0), T = context_BTC.size(1), H = config_.heads,
                     K = config_.head_size();
  const at::Tensor qkv = linear(context_BTC, w.qkv).view({B, T, 3, H, K});
  const at::Tensor rope_TK = continued ? continued->rope_NK : rope_TK_.narrow(0, 0, T);
  at::Tensor q, k;
  if (kernels_ && K <= cuda::kMaxHeadSize) {
    std::tie(q, k) = kernel_rope_qknorm(*kernels_, qkv, w.q_norm, w.k_norm, rope_TK);
  } else {
    q = rotated_and_normed(qkv.select(2, 0), w.q_norm, rope_TK);
    k = rotated_and_normed(qkv.select(2, 1), w.k_norm, rope_TK);
  }
  const at::Tensor v = qkv.select(2, 2);
  const at::Tensor attended =
      continued
          ? continued->past.attend(layer, q.squeeze(0), k.squeeze(0), v.squeeze(0))
          : at::scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), {},
                                             /*dropout_p=*/0.0, /*is_causal=*/true)
                .transpose(1, 2);
  return linear(attended.reshape({B, T, H * K}), w.out);
}

at::Tensor Sublayers::mlp(Index layer, const at::Tensor& context_BTC) const {
  const Layer& w = layers_[layer];
  const std::int64_t F = config_.mlp_width();
  const at::Tensor gate_up = linear(context_BTC, w.gate_up);
  if (kernels_) return linear(kernel_swiglu(*kernels_, gate_up), w.down);
  const at::Tensor a = gate_up.narrow(-1, 0, F).to(at::kFloat), b = gate_up.narrow(-1, F, F).to(at::kFloat);
  return linear((at::silu(a) * b).to(activations_), w.down);
}

// With z = logit_scale W x and p = softmax(z), of the rows that have a target:
//   loss = lse(z) - z_target      dz = scale (p - onehot)      dx = logit_scale W^T dz      dW = logit_scale dz x^T
double Sublayers::loss(const at::Tensor& context_NC, const at::Tensor& target_N, const TokenScores& scores,
                       double grad_scale, at::Tensor* dcontext_NC) const {
  const at::NoGradGuard no_graph;
  const std::int64_t N = context_NC.size(0);
  const auto predicted = (target_N >= 0).sum().item<std::int64_t>();
  if (predicted == 0) throw UserError("a batch of {} tokens has no target to predict", N);
  const double logit_scale = config_.logit_scale(), scale = grad_scale / static_cast<double>(predicted);
  const bool backward = grad_scale != 0;
  if (backward) *dcontext_NC = at::empty_like(context_NC);
  const at::Tensor w = wte_.detach().to(activations_);
  const std::int64_t chunk = head_chunk_rows(N, config_.vocab);
  double sum = 0;
  for (std::int64_t begin = 0; begin < N; begin += chunk) {
    const std::int64_t rows = std::min(chunk, N - begin);
    const at::Tensor x = context_NC.narrow(0, begin, rows), target = target_N.narrow(0, begin, rows);
    const at::Tensor wanted = target >= 0, at_target = target.clamp_min(0).unsqueeze(1);
    at::Tensor z = at::linear(x, w).to(at::kFloat);
    if (logit_scale != 1) z *= logit_scale;
    const at::Tensor lse = z.logsumexp(1, /*keepdim=*/true), z_target = z.gather(1, at_target);
    const at::Tensor loss_n = at::where(wanted, (lse - z_target).squeeze(1), 0.0);
    sum += loss_n.sum(at::kDouble).item<double>();
    if (scores.loss_N) {
      const at::Tensor here = loss_n.cpu();
      std::memcpy(scores.loss_N + begin, here.data_ptr(), static_cast<std::size_t>(rows) * sizeof(float));
    }
    if (scores.correct_N) {
      const at::Tensor right =
          wanted.logical_and(z.amax(1, true).le(z_target).squeeze(1)).to(at::kByte).cpu();
      std::memcpy(scores.correct_N + begin, right.data_ptr(), static_cast<std::size_t>(rows));
    }
    if (!backward) continue;
    at::Tensor dz = z.sub_(lse).exp_();
    dz.scatter_add_(1, at_target, at::empty_like(z_target).fill_(-1.0));
    dz *= wanted.to(at::kFloat).unsqueeze(1) * (scale * logit_scale);
    dz = dz.to(activations_);
    dcontext_NC->narrow(0, begin, rows).copy_(dz.mm(w));
    at::Tensor gradient = wte_gradient_;
    if (activations_ == at::kFloat)
      gradient.addmm_(dz.t(), x);
    else
      gradient += dz.t().mm(x);
  }
  return sum / static_cast<double>(predicted);
}

}  // namespace ddl
