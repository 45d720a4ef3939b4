// The worked example of docs/add-an-optimizer.md: gradient descent with momentum.
#pragma once

#include "model/optimizer/optimizer.h"

namespace ddl {

struct SgdOptions : OptionSetOf<SgdOptions> {
  double momentum = 0.9;
  void describe(Options& o) override {
    o.add("train.momentum", momentum, "SGD: decay of the sum of gradients").range(0, 0.999999);
  }
};

class Sgd final : public Optimizer {
 public:
  Sgd(const ParamTable& table, double hidden_lr_factor, const OptimizerConfig& config, Arena& arena)
      : Optimizer(table, config, arena),
        momentum_(static_cast<float>(config.own.as<SgdOptions>().momentum)),
        tensors_(tensor_entries(table, hidden_lr_factor)),
        velocity_(take_state("velocity", tensors_, arena)) {}

  std::vector<NamedArray> state() const override { return {velocity_}; }

 private:
  // v = momentum v + g        p = p (1 - lr decay) - lr v
  void update(const OptimizerStep& step, const Exec& ex) override {
    for (std::size_t k = 0; k < tensors_.size(); ++k) {
      const TensorEntry& t = tensors_[k];
      const double lr = step.lr * t.lr_factor;
      const float rate = static_cast<float>(lr), scale = static_cast<float>(step.grad_scale);
      const float keep = static_cast<float>(1 - lr * (t.decays ? step.weight_decay : 0));
      float *p_n = step.params + t.offset, *g_n = step.grads + t.offset;
      float* v_n = velocity_.data + velocity_.tensors[k].offset;
      parallel_chunks(t.count, 1 << 16, ex, [&](Index begin, Index end) {
        for (Index i = begin; i < end; ++i) {
          v_n[i] = momentum_ * v_n[i] + scale * g_n[i];
          p_n[i] = keep * p_n[i] - rate * v_n[i];
          if (step.copy) step.copy[t.offset + i] = to_bf16(p_n[i]);
          g_n[i] = 0;
        }
      });
    }
  }

  const float momentum_;
  const std::vector<TensorEntry> tensors_;
  const NamedArray velocity_;
};

inline OptimizerEntry sgd_entry() {
  return {"sgd", OptionSetPtr(SgdOptions{}),
          [](const ParamTable& table, double hidden_lr_factor, const OptimizerConfig& config,
             Arena& arena) -> std::unique_ptr<Optimizer> {
            return std::make_unique<Sgd>(table, hidden_lr_factor, config, arena);
          }};
}

}  // namespace ddl
