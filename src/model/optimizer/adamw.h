// AdamW, for all tensors, or for those that another optimizer leaves to it.
#pragma once

#include "model/optimizer/optimizer.h"

namespace ddl {

struct AdamWOptions : OptionSetOf<AdamWOptions> {
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
  void describe(Options& options) override;
};

class AdamWTensors {
 public:
  AdamWTensors(std::span<const TensorEntry> tensors, const AdamWOptions& options, Arena& arena);
  std::vector<NamedArray> state() const { return {mean_, square_}; }
  void update(const OptimizerStep& step, const Exec& ex);

 private:
  struct Run {  // neighbours in the table that are updated alike: one loop
    Index begin = 0, end = 0;
    Index state = 0;  // where its state begins
    double lr_factor = 1;
    bool decays = false;
  };
  const AdamWOptions options_;
  NamedArray mean_, square_;
  std::vector<Run> runs_;
};

OptimizerEntry adamw_entry();

}  // namespace ddl
