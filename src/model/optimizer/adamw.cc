#include "model/optimizer/adamw.h"

#include "kernels/adamw.h"

namespace ddl {
namespace {

class AdamWOptimizer final : public Optimizer {
 public:
  AdamWOptimizer(const ParamTable& table, double hidden_lr_factor, const OptimizerConfig& config,
                 Arena& arena)
      : Optimizer(table, config, arena),
        all_(tensor_entries(table, hidden_lr_factor), config.own.as<AdamWOptions>(), arena) {}

  std::vector<NamedArray> state() const override { return all_.state(); }

 private:
  void update(const OptimizerStep& step, const Exec& ex) override { all_.update(step, ex); }
  AdamWTensors all_;
};

}  // namespace

OptimizerEntry adamw_entry() {
  return {"adamw", OptionSetPtr(AdamWOptions{}),
          [](const ParamTable& table, double hidden_lr_factor, const OptimizerConfig& config,
             Arena& arena) -> std::unique_ptr<Optimizer> {
            return std::make_unique<AdamWOptimizer>(table, hidden_lr_factor, config, arena);
          }};
}

void AdamWOptions::describe(Options& o) {
  o.add("train.beta1", beta1, "AdamW: decay of the mean gradient").range(0, 0.999999);
  o.add("train.beta2", beta2, "AdamW: decay of the mean square").range(0, 0.999999);
  o.add("train.eps", eps, "AdamW: guard of the division").range(1e-30, 1);
}

AdamWTensors::AdamWTensors(std::span<const TensorEntry> tensors, const AdamWOptions& options, Arena& arena)
    : options_(options),
      mean_(take_state("exp_avg", tensors, arena)),
      square_(take_state("exp_avg_sq", tensors, arena)) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorEntry& t = tensors[i];
    const Index end = t.offset + t.count;
    // Gaps between tensors hold zeros with zero gradients, and the state has the same gaps: a run may span
    // them.
    if (i > 0 && tensors[i - 1].param + 1 == t.param && runs_.back().lr_factor == t.lr_factor &&
        runs_.back().decays == t.decays)
      runs_.back().end = end;
    else
      runs_.push_back({t.offset, end, mean_.tensors[i].offset, t.lr_factor, t.decays});
  }
}

void AdamWTensors::update(const OptimizerStep& step, const Exec& ex) {
  AdamW adamw;
  adamw.beta1 = options_.beta1, adamw.beta2 = options_.beta2, adamw.eps = options_.eps;
  adamw.grad_scale = step.grad_scale;
  adamw.step = step.number;
  for (const Run& run : runs_) {
    adamw.lr = step.lr * run.lr_factor;
    adamw.weight_decay = run.decays ? step.weight_decay : 0;
    adamw_step(step.params + run.begin, mean_.data + run.state, square_.data + run.state,
               step.copy ? step.copy + run.begin : nullptr, step.grads + run.begin, /*zero_grad=*/true, adamw,
               run.end - run.begin, ex);
  }
}

}  // namespace ddl
