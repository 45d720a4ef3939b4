#include "model/residual/example_rule.h"

#include <algorithm>

#include "kernels/residual_pass.h"
#include "model/config.h"
#include "model/residual/registry.h"

namespace ddl {
namespace {

template <class T>
class StrengthRule final : public ResidualRule<T> {
 public:
  explicit StrengthRule(const ModelConfig& config)
      : C_(config.width), S_(config.sublayers()), norm_eps_(static_cast<float>(config.norm_eps)) {}

  // 1. Parameters: a norm in front of every sublayer and of the head, and one strength per sublayer.
  void add_params(ParamTable& table) override {
    for (Index s = 0; s < S_; ++s)
      norm_.push_back(table.add_norm(fmt::format("transformer.h.{}.ln_{}.weight", s / 2, s % 2 + 1), C_));
    norm_.push_back(table.add_norm("ln_f.weight", C_));
    strength_ = table.add("strength", {S_}, Init::constant(0.5));
  }
  void bind(const Numbers<T>& numbers) override { params_ = numbers.params, grads_ = numbers.grads; }

  // 2. Memory: the state, one statistic per token and norm, and to train the state's gradient.
  void plan(Arena& arena, const Room& room) override {
    rows_ = room.tokens;
    x_NC_ = arena.take<float>("residual state", rows_ * C_);
    rstd_SN_ = arena.take<float>("norm statistics", (S_ + 1) * rows_);
    if (!room.training) return;
    dx_NC_ = arena.take<float>("residual state gradient", rows_ * C_);
    scratch_ = arena.take<float>("reduction scratch", residual_bwd_scratch(1, C_, 0));
  }

  // 3. Forward: x += a_s h. Each token concerns itself alone, so whole sequences and spans are the same, and
  // there is nothing to remember of a sequence.
  void start(T* context_NC, const float* x_NC, const Tokens& tokens, const Exec& ex) override {
    std::copy_n(x_NC, tokens.count * C_, x_NC_);
    read(0, context_NC, tokens, ex);
  }
  void write_and_read(Index s, T* next_context_NC, const T* h_NC, const Tokens& tokens,
                      const Exec& ex) override {
    const float a = params_[strength_ + s];
    for (Index i = 0; i < tokens.count * C_; ++i) x_NC_[i] += a * to_float(h_NC[i]);
    read(s + 1, next_context_NC, tokens, ex);
  }
  void copy_slot(Index, Index) override {}
  Index remembered_floats() const override { return 0; }
  double state_floats() const override { return static_cast<double>(C_); }

  // 4. Backward, in reverse: the read's gradient joins dx, then dh = a dx, da = dx . h, and x is walked back.
  void write_and_read_backward(Index s, T* dh_NC, float* dnext_context_NC, const T*, const T* h_NC,
                               const Tokens& tokens, const Exec& ex) override {
    read_backward(s + 1, dnext_context_NC, tokens, ex);
    const float a = params_[strength_ + s];
    double da = 0;
    for (Index i = 0; i < tokens.count * C_; ++i) {
      const float h = to_float(h_NC[i]);
      dh_NC[i] = from_float<T>(a * dx_NC_[i]);
      da += double{dx_NC_[i]} * h;
      x_NC_[i] -= a * h;
    }
    grads_[strength_ + s] += static_cast<float>(da);
  }
  void start_backward(float* dx_NC, float* dcontext_NC, const T*, const float*, const Tokens& tokens,
                      const Exec& ex) override {
    read_backward(0, dcontext_NC, tokens, ex);
    std::copy_n(dx_NC_, tokens.count * C_, dx_NC);
  }

  // 5. Costs per token.
  double flops_forward() const override { return static_cast<double>(C_ * (2 * S_ + 4 * (S_ + 1))); }
  double flops_backward() const override { return static_cast<double>(C_ * (5 * S_ + 10 * (S_ + 1))); }

 private:
  void read(Index s, T* context_NC, const Tokens& tokens, const Exec& ex) {
    const ReadFwd<T> part{.norm_C = params_ + norm_[s],
                          .norm_eps = norm_eps_,
                          .context_NC = context_NC,
                          .rstd_N = rstd_SN_ + s * rows_};
    residual_fwd<T>(x_NC_, nullptr, &part, tokens.count, 1, C_, ex);
  }
  void read_backward(Index s, const float* dcontext_NC, const Tokens& tokens, const Exec& ex) {
    const ReadBwd<T> part{.norm_C = params_ + norm_[s],
                          .rstd_N = rstd_SN_ + s * rows_,
                          .dcontext_NC = dcontext_NC,
                          .dstate_mode = s == S_ ? Write::kOverwrite : Write::kAccumulate,
                          .dnorm_C = grads_ + norm_[s]};
    residual_bwd<T>(x_NC_, dx_NC_, &part, nullptr, scratch_, tokens.count, 1, C_, ex);
  }

  const Index C_, S_;
  const float norm_eps_;
  std::vector<Index> norm_;
  Index strength_ = 0, rows_ = 0;
  const float* params_ = nullptr;
  float* grads_ = nullptr;
  float *x_NC_ = nullptr, *dx_NC_ = nullptr, *rstd_SN_ = nullptr, *scratch_ = nullptr;
};

// 6. The same as plain scalar code on any number type. It is what the tests hold the rule to, and what
// model.engine=reference runs; its gradients come by themselves.
template <class Num>
class StrengthOracle final : public ref::Rule<Num> {
 public:
  explicit StrengthOracle(const ModelConfig& config) : sublayers_(config.sublayers()) {}

  void add_counts(std::map<std::string, Index>& counts) const override { counts["strength"] = sublayers_; }
  ref::Vec<Num> start(const ref::Vec<Num>& x_NC, const ref::Parameters<Num>&, Index, Index) const override {
    return x_NC;
  }
  ref::Vec<Num> read(const ref::Vec<Num>& x_NC, const ref::Place&, const ref::Parameters<Num>&, Index,
                     Index) const override {
    return x_NC;
  }
  ref::Vec<Num> write(const ref::Vec<Num>& x_NC, ref::SublayerTrace<Num>& sublayer, const ref::Place& place,
                      const ref::Parameters<Num>& w, Index) const override {
    const Num a = ref::find_parameter(w, "strength")[place.s];
    ref::Vec<Num> next_NC = x_NC;
    for (std::size_t i = 0; i < next_NC.size(); ++i) next_NC[i] += a * sublayer.h_NC[i];
    return next_NC;
  }

 private:
  const Index sublayers_;
};

}  // namespace

// 7. Registration: from here on the name works everywhere.
void register_example_rule() {
  RuleEntry entry{.name = "example-strength",
                  .summary = "additive residual with a learned strength per sublayer"};
  entry.make_f32 = [](const ModelConfig& config) { return std::make_unique<StrengthRule<float>>(config); };
  entry.make_bf16 = [](const ModelConfig& config) { return std::make_unique<StrengthRule<bf16>>(config); };
  register_rule(with_oracle<StrengthOracle>(std::move(entry)));
}

}  // namespace ddl
