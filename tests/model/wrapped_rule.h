// A rule that does what another does: tests change the part they are about.
#pragma once

#include "model/config.h"
#include "model/residual/residual.h"

namespace ddl {

class WrappedRule : public Residual<float> {
 public:
  explicit WrappedRule(std::unique_ptr<Residual<float>> inner) : inner_(std::move(inner)) {}

  void add_params(ParamTable& table) override { inner_->add_params(table); }
  void plan(Arena& arena, bool training) override { inner_->plan(arena, training); }
  void bind(const float* params, const float* params_T, float* grads) override {
    inner_->bind(params, params_T, grads);
  }
  void open(float* context_NC, const float* x_NC, const Exec& ex) override {
    inner_->open(context_NC, x_NC, ex);
  }
  void advance(Index s, float* next_context_NC, const float* h_NC, const Exec& ex) override {
    inner_->advance(s, next_context_NC, h_NC, ex);
  }
  void retreat(Index s, float* dh_NC, float* dnext_context_NC, const float* next_context_NC,
               const float* h_NC, const Exec& ex) override {
    inner_->retreat(s, dh_NC, dnext_context_NC, next_context_NC, h_NC, ex);
  }
  void close(float* dx_NC, float* dcontext_NC, const float* context_NC, const float* x_NC,
             const Exec& ex) override {
    inner_->close(dx_NC, dcontext_NC, context_NC, x_NC, ex);
  }
  void plan_decode(Arena& arena, Index slots) override { inner_->plan_decode(arena, slots); }
  void decode_open(float* context_NC, const float* x_NC, DecodeSpans spans, const Exec& ex) override {
    inner_->decode_open(context_NC, x_NC, spans, ex);
  }
  void decode_advance(Index s, float* next_context_NC, const float* h_NC, DecodeSpans spans,
                      const Exec& ex) override {
    inner_->decode_advance(s, next_context_NC, h_NC, spans, ex);
  }
  void decode_copy(Index to_slot, Index from_slot) override { inner_->decode_copy(to_slot, from_slot); }
  double flops_forward() const override { return inner_->flops_forward(); }
  double flops_backward() const override { return inner_->flops_backward(); }
  Index cache_floats() const override { return inner_->cache_floats(); }
  GateTrace trace(Index s) const override { return inner_->trace(s); }

 private:
  std::unique_ptr<Residual<float>> inner_;
};

// Registers the wrapper that `wrap` makes around the rule `inner` as `name`, in f32 alone.
inline void register_wrapped(const std::string& name, const std::string& inner,
                             std::function<std::unique_ptr<Residual<float>>(std::unique_ptr<Residual<float>>,
                                                                            const ModelConfig&, BatchShape)>
                                 wrap) {
  RuleEntry entry{.name = name, .summary = "for tests", .paper = {}, .make_f32 = {}, .make_bf16 = {}};
  entry.make_f32 = [inner, wrap](const ModelConfig& config, BatchShape shape) {
    ModelConfig inner_config = config;
    inner_config.residual = inner;
    return wrap(make_residual<float>(inner_config, shape), config, shape);
  };
  register_residual(entry);
}

}  // namespace ddl
