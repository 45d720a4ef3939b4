// A rule that does what another does: tests change the part they are about.
#pragma once

#include "model/config.h"
#include "model/residual/registry.h"

namespace ddl {

class WrappedRule : public ResidualRule<float> {
 public:
  explicit WrappedRule(std::unique_ptr<ResidualRule<float>> inner) : inner_(std::move(inner)) {}

  void add_params(ParamTable& table) override { inner_->add_params(table); }
  void plan(Arena& arena, const Room& room) override { inner_->plan(arena, room); }
  void bind(const Numbers<float>& numbers) override { inner_->bind(numbers); }
  void start(float* context_NC, const float* x_NC, const Tokens& tokens, const Exec& ex) override {
    inner_->start(context_NC, x_NC, tokens, ex);
  }
  void write_and_read(Index s, float* next_context_NC, const float* h_NC, const Tokens& tokens,
                      const Exec& ex) override {
    inner_->write_and_read(s, next_context_NC, h_NC, tokens, ex);
  }
  void copy_slot(Index to, Index from) override { inner_->copy_slot(to, from); }
  void write_and_read_backward(Index s, float* dh_NC, float* dnext_context_NC, const float* next_context_NC,
                               const float* h_NC, const Tokens& tokens, const Exec& ex) override {
    inner_->write_and_read_backward(s, dh_NC, dnext_context_NC, next_context_NC, h_NC, tokens, ex);
  }
  void start_backward(float* dx_NC, float* dcontext_NC, const float* context_NC, const float* x_NC,
                      const Tokens& tokens, const Exec& ex) override {
    inner_->start_backward(dx_NC, dcontext_NC, context_NC, x_NC, tokens, ex);
  }
  double flops_forward() const override { return inner_->flops_forward(); }
  double flops_backward() const override { return inner_->flops_backward(); }
  Index remembered_floats() const override { return inner_->remembered_floats(); }
  double state_floats() const override { return inner_->state_floats(); }
  std::vector<TokenSeries> series(Index s) const override { return inner_->series(s); }

 private:
  std::unique_ptr<ResidualRule<float>> inner_;
};

// Registers the wrapper that `wrap` makes around the rule `inner` as `name`, in f32 alone. Options and oracle
// are the inner rule's.
inline void register_wrapped(const std::string& name, const std::string& inner,
                             std::function<std::unique_ptr<ResidualRule<float>>(
                                 std::unique_ptr<ResidualRule<float>>, const ModelConfig&)>
                                 wrap) {
  const RuleEntry of_inner = find_rule(inner);
  const auto inner_config = [inner](ModelConfig config) {
    config.use_residual(inner);
    return config;
  };
  RuleEntry entry{.name = name, .summary = "for tests", .options = of_inner.options};
  entry.make_f32 = [=](const ModelConfig& config) {
    return wrap(of_inner.make_f32(inner_config(config)), config);
  };
  entry.oracle = [=](const ModelConfig& config) { return of_inner.oracle(inner_config(config)); };
  entry.complex_oracle = [=](const ModelConfig& config) {
    return of_inner.complex_oracle(inner_config(config));
  };
  entry.tape_oracle = [=](const ModelConfig& config) { return of_inner.tape_oracle(inner_config(config)); };
  register_rule(entry);
}

}  // namespace ddl
