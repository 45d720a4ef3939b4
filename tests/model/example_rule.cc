#include "model/example_rule.h"

#include "kernels/residual.h"
#include "model/config.h"
#include "model/residual/residual.h"

namespace ddl {
namespace {

template <class T>
class StrengthRule final : public Residual<T> {
 public:
  StrengthRule(const ModelConfig& config, BatchShape shape)
      : N_(shape.N()), C_(config.width), S_(config.sublayers()) {}

  // 1. Parameters: a norm in front of every sublayer and of the head, and one strength per sublayer.
  void add_params(ParamTable& table) override {
    norm_.clear();
    for (Index s = 0; s < S_; ++s)
      norm_.push_back(
          table.add(fmt::format("transformer.h.{}.ln_{}.weight", s / 2, s % 2 + 1), {C_}, Init::constant(1)));
    norm_.push_back(table.add("ln_f.weight", {C_}, Init::constant(1)));
    strength_ = table.add("strength", {S_}, Init::constant(0.5));
  }

  // 2. Memory: the state, its gradient, and one statistic per token and norm.
  void plan(Arena& arena, bool training) override {
    x_NC_ = arena.take<float>("residual state", N_ * C_);
    rstd_SN_ = arena.take<float>("norm statistics", (S_ + 1) * N_);
    if (!training) return;
    dx_NC_ = arena.take<float>("residual state gradient", N_ * C_);
    scratch_ = arena.take<float>("reduction scratch", residual_bwd_scratch(1, C_, 0));
  }
  void bind(const float* params, const T*, float* grads) override { params_ = params, grads_ = grads; }

  // 3. Forward.
  void open(T* context_NC, const float* x_NC, const Exec& ex) override { begin(context_NC, x_NC, N_, ex); }
  void advance(Index s, T* next_context_NC, const T* h_NC, const Exec& ex) override {
    write(s, next_context_NC, h_NC, N_, ex);
  }

  // 4. Backward, in reverse: the read's gradient joins dx, then dh = a dx, da = dx . h, and x is walked back.
  void retreat(Index s, T* dh_NC, float* dnext_context_NC, const T*, const T* h_NC, const Exec& ex) override {
    read_backward(s + 1, dnext_context_NC, ex);
    const float a = params_[strength_ + s];
    double da = 0;
    for (Index i = 0; i < N_ * C_; ++i) {
      const float h = to_float(h_NC[i]);
      dh_NC[i] = from_float<T>(a * dx_NC_[i]);
      da += double{dx_NC_[i]} * h;
      x_NC_[i] -= a * h;
    }
    grads_[strength_ + s] += static_cast<float>(da);
  }
  void close(float* dx_NC, float* dcontext_NC, const T*, const float*, const Exec& ex) override {
    read_backward(0, dcontext_NC, ex);
    std::copy_n(dx_NC_, N_ * C_, dx_NC);
  }

  // 5. Decoding: each token concerns itself alone, so it is the forward pass over whatever tokens there are,
  // and there is nothing to remember.
  void plan_decode(Arena& arena, Index) override { plan(arena, false); }
  void decode_open(T* context_NC, const float* x_NC, DecodeSpans spans, const Exec& ex) override {
    begin(context_NC, x_NC, token_count(spans), ex);
  }
  void decode_advance(Index s, T* next_context_NC, const T* h_NC, DecodeSpans spans,
                      const Exec& ex) override {
    write(s, next_context_NC, h_NC, token_count(spans), ex);
  }
  void decode_copy(Index, Index) override {}

  // 6. Costs per token.
  double flops_forward() const override { return static_cast<double>(C_ * (2 * S_ + 4 * (S_ + 1))); }
  double flops_backward() const override { return static_cast<double>(C_ * (5 * S_ + 10 * (S_ + 1))); }
  Index cache_floats() const override { return 0; }

 private:
  void begin(T* context_NC, const float* x_NC, Index N, const Exec& ex) {
    std::copy_n(x_NC, N * C_, x_NC_);
    read(0, context_NC, N, ex);
  }
  void write(Index s, T* next_context_NC, const T* h_NC, Index N, const Exec& ex) {
    const float a = params_[strength_ + s];
    for (Index i = 0; i < N * C_; ++i) x_NC_[i] += a * to_float(h_NC[i]);
    read(s + 1, next_context_NC, N, ex);
  }
  void read(Index s, T* context_NC, Index N, const Exec& ex) {
    const ReadFwd<T> part{
        .norm_C = params_ + norm_[s], .context_NC = context_NC, .rstd_N = rstd_SN_ + s * N_};
    residual_fwd<T>(x_NC_, nullptr, &part, N, 1, C_, ex);
  }
  void read_backward(Index s, const float* dcontext_NC, const Exec& ex) {
    const ReadBwd<T> part{.norm_C = params_ + norm_[s],
                          .rstd_N = rstd_SN_ + s * N_,
                          .dcontext_NC = dcontext_NC,
                          .dstate_mode = s == S_ ? Write::kOverwrite : Write::kAccumulate,
                          .dnorm_C = grads_ + norm_[s]};
    residual_bwd<T>(x_NC_, dx_NC_, &part, nullptr, scratch_, N_, 1, C_, ex);
  }

  const Index N_, C_, S_;
  std::vector<Index> norm_;
  Index strength_ = 0;
  const float* params_ = nullptr;
  float* grads_ = nullptr;
  float *x_NC_ = nullptr, *dx_NC_ = nullptr, *rstd_SN_ = nullptr, *scratch_ = nullptr;
};

}  // namespace

// 7. Registration: from here on the name works everywhere.
void register_example_rule() {
  register_residual({"example-strength", "additive residual with a learned strength per sublayer",
                     std::nullopt,
                     [](const ModelConfig& config, BatchShape shape) -> std::unique_ptr<Residual<float>> {
                       return std::make_unique<StrengthRule<float>>(config, shape);
                     },
                     [](const ModelConfig& config, BatchShape shape) -> std::unique_ptr<Residual<bf16>> {
                       return std::make_unique<StrengthRule<bf16>>(config, shape);
                     }});
}

}  // namespace ddl
