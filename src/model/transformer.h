// The pre-norm decoder with an exchangeable residual interface. T is the type of activations and GEMM inputs.
#pragma once

#include "model/layout.h"
#include "model/model.h"

namespace ddl {

template <class T>
class Transformer final : public Model {
 public:
  Transformer(const ModelConfig& config, BatchShape shape, Mode mode, int threads);

  void allocate(std::uint64_t seed, const Exec& ex);
  ModelPlan plan() const;

  const ModelConfig& config() const override { return config_; }
  BatchShape shape() const override { return shape_; }
  const ParamTable& table() const override { return table_; }
  const Arena& arena() const override { return arena_; }
  std::span<float> params() override { return {params_, static_cast<std::size_t>(table_.floats())}; }
  std::span<float> grads() override {
    return {grads_, grads_ ? static_cast<std::size_t>(table_.floats()) : 0};
  }
  bf16* bf16_copy() override;
  void params_changed(const Exec& ex) override;
  double loss(const BatchView& batch, const TokenScores& scores, const Exec& ex) override;
  double loss_and_grad(const BatchView& batch, double grad_scale, const Exec& ex) override;
  GateTrace trace(Index s) const override { return residual_->trace(s); }

 private:
  using LayerParams = TransformerLayout::Layer;
  // What backward needs of a layer; with recompute, several layers share the parts that are computed again.
  struct LayerSaved {
    T *qkv_N3C = nullptr, *o_NC = nullptr, *gate_up_N2F = nullptr;
    float *qk_rstd_N2H = nullptr, *lse_NH = nullptr;
  };

  void plan_memory(Arena& arena);
  const T* w(Index offset) const { return params_T_ + offset; }
  float* g(Index offset) const { return grads_ + offset; }

  void forward(const BatchView& batch, const Exec& ex);
  void attention_forward(Index layer, T* h_NC, const T* context_NC, const Exec& ex);
  void mlp_forward(Index layer, T* h_NC, const T* context_NC, const Exec& ex);
  void attention_backward(Index layer, float* dcontext_NC, const T* dh_NC, const T* context_NC,
                          const Exec& ex);
  void mlp_backward(Index layer, float* dcontext_NC, const T* dh_NC, const T* context_NC, const Exec& ex);
  void attention_inputs(Index layer, const T* context_NC, const Exec& ex);
  void backward(const BatchView& batch, const Exec& ex);
  // grad_scale 0: loss only.
  double head(const BatchView& batch, const TokenScores& scores, double grad_scale, const Exec& ex);

  const ModelConfig config_;
  const BatchShape shape_;
  const bool training_;
  const int threads_;  // attention's scratch is planned for these
  const Index N_, C_, F_, H_, K_, V_, S_;
  Index head_rows_;  // tokens per chunk of the head

  ParamTable table_;
  std::unique_ptr<Residual<T>> residual_;
  TransformerLayout layout_;

  Arena arena_ = Arena::measuring();
  float *params_ = nullptr, *grads_ = nullptr;
  T* params_T_ = nullptr;  // params_ itself for float

  float* rope_TK_ = nullptr;
  float* x_NC_ = nullptr;        // embedding
  std::vector<T*> context_, h_;  // S + 1 and S rows of [N, C]
  std::vector<LayerSaved> saved_;
  T *q_NC_ = nullptr, *k_NC_ = nullptr, *hidden_NF_ = nullptr;
  float* logits_RV_ = nullptr;
  float* loss_N_ = nullptr;

  T* dlogits_RV_ = nullptr;  // logits_RV_ itself for float
  float *dcontext_NC_ = nullptr, *dx_NC_ = nullptr;
  T *dh_NC_ = nullptr, *do_NC_ = nullptr, *dqkv_N3C_ = nullptr, *dhidden_NF_ = nullptr,
    *dgate_up_N2F_ = nullptr;
  float* norm_scratch_ = nullptr;
  std::byte* attention_scratch_ = nullptr;
};

}  // namespace ddl
