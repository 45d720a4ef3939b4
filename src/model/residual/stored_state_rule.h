// What rules share whose state has one channel and is kept in front of every write, because their write cannot be
// walked back safely. A rule derives from this and adds its write; the norms, the states and the two ends of the
// network are here.
#pragma once

#include <vector>

#include "kernels/elementwise_residual.h"
#include "model/config.h"
#include "model/residual/rule.h"
#include "model/residual/stages.h"

namespace ddl {

template <class T>
class StoredStateRule : public ResidualRule<T> {
 public:
  explicit StoredStateRule(const ModelConfig& config)
      : C_(config.width), S_(config.sublayers()), norm_eps_(static_cast<float>(config.norm_eps)) {}

  void add_params(ParamTable& table) override { norms_ = add_stage_norms(table, S_, C_); }

  // x_1 .. x_S, the states that sublayers 1 .. S-1 and the readout see; x_0 is the embedding itself. Without
  // training one state is written in place.
  void plan(Arena& arena, const Room& room) override {
    const Index N = room.tokens;
    const auto take = [&](const char* name, Index count) { return arena.take<float>(name, count); };
    x_.assign(static_cast<std::size_t>(S_ + 1), nullptr);
    rstd_.assign(static_cast<std::size_t>(S_ + 1), nullptr);
    for (Index s = 0; s <= S_; ++s) {
      if (s > 0)
        x_[s] = room.training ? take("stored states", N * C_)
                : s == 1      ? take("residual state", N * C_)
                              : x_[1];
      rstd_[s] = room.training || s == 0 ? take("norm statistics", N) : rstd_[0];
    }
    if (!room.training) return;
    dstate_NC_ = take("residual state gradient", N * C_);
    scratch_ = take("reduction scratch", elementwise_residual_scratch(C_));
  }

  void bind(const Numbers<T>& numbers) override { numbers_ = numbers; }

  void start(T* context_NC, const float* x_NC, const Tokens& tokens, const Exec& ex) override {
    embedding_NC_ = x_NC;
    norm_fwd(norm_of(0, context_NC), x_NC, tokens.count, C_, ex);
  }
  void start_backward(float* dx_NC, float* dcontext_NC, const T*, const float* x_NC, const Tokens& tokens,
                      const Exec& ex) override {
    norm_bwd(dx_NC, dstate_NC_, embedding_gradient(), norm_backward_of(0, dcontext_NC), x_NC, scratch_,
             tokens.count, C_, ex);
  }

  StateView view(Index s) const override { return {x_NC(s), 1, rstd_[s]}; }
  bool read_as_last(Index s, T* context_NC, const Tokens& tokens, const Exec& ex) override {
    norm_fwd(norm_of(S_, context_NC), x_NC(s), tokens.count, C_, ex);
    return true;
  }

  // Each token concerns itself alone: there is nothing to remember of a sequence.
  void copy_slot(Index, Index) override {}
  Index remembered_floats() const override { return 0; }
  double state_floats() const override { return static_cast<double>(C_); }

  // A norm: square, sum, scale, weight = 4 C; backward 9 C, and C to join its gradient to the state's.
  double flops_forward() const override {
    return static_cast<double>(C_) *
           (4 * static_cast<double>(S_ + 1) + static_cast<double>(S_) * write_flops());
  }
  double flops_backward() const override {
    return static_cast<double>(C_) *
           (10 * static_cast<double>(S_ + 1) + static_cast<double>(S_) * write_backward_flops());
  }

 protected:
  // Of a write, per feature.
  virtual double write_flops() const = 0;
  virtual double write_backward_flops() const = 0;
  // The gradient of the embedding by other paths than the state's; null: there are none.
  virtual const float* embedding_gradient() const { return nullptr; }

  const float* p(Index offset) const { return numbers_.params + offset; }
  float* g(Index offset) const { return numbers_.grads ? numbers_.grads + offset : nullptr; }
  Index width() const { return C_; }
  Index sublayers() const { return S_; }
  const float* embedding_NC() const { return embedding_NC_; }
  const float* x_NC(Index s) const { return s == 0 ? embedding_NC_ : x_[s]; }
  float* next_NC(Index s) const { return x_[s + 1]; }
  const float* rstd_N(Index s) const { return rstd_[s]; }
  const float* norm_C(Index s) const { return p(norms_[s]); }
  float* dnorm_C(Index s) const { return g(norms_[s]); }
  float* dstate_NC() const { return dstate_NC_; }
  float* scratch() const { return scratch_; }
  // At the top no later path has reached the state.
  Write gradient_mode(Index s) const { return s == S_ - 1 ? Write::kOverwrite : Write::kAccumulate; }

  NormFwd<T> norm_of(Index s, T* context_NC) const {
    return {.norm_C = p(norms_[s]), .norm_eps = norm_eps_, .context_NC = context_NC, .rstd_N = rstd_[s]};
  }
  NormBwd norm_backward_of(Index s, const float* dcontext_NC) const {
    return {.norm_C = p(norms_[s]), .rstd_N = rstd_[s], .dcontext_NC = dcontext_NC, .dnorm_C = g(norms_[s])};
  }

 private:
  const Index C_, S_;
  const float norm_eps_;
  std::vector<Index> norms_;  // offsets
  std::vector<float*> x_, rstd_;
  Numbers<T> numbers_;
  const float* embedding_NC_ = nullptr;  // of this pass
  float *dstate_NC_ = nullptr, *scratch_ = nullptr;
};

}  // namespace ddl
