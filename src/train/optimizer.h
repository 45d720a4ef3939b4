// AdamW over all parameters of a model, with one global gradient norm, and the optional average of weights.
#pragma once

#include <span>
#include <vector>

#include "core/arena.h"
#include "core/exec.h"
#include "model/model.h"
#include "train/config.h"

namespace ddl {

class Optimizer {
 public:
  // State arrays are laid out by the model's table; `average` null without an EMA.
  struct State {
    float* mean = nullptr;
    float* square = nullptr;
    float* average = nullptr;
  };

  // Takes its state from `arena`; the average starts at the model's parameters (see start_average).
  Optimizer(Model& model, const TrainConfig& config, Arena& arena);

  struct Update {
    double grad_norm = 0;  // before clipping
    bool applied = false;  // false: the norm was not finite, parameters and state are untouched
  };
  // One update at this rate from the accumulated gradients, which are zero afterwards in any case.
  Update step(double lr, const Exec& ex);
  // Drops the accumulated gradients without an update.
  void discard(const Exec& ex);

  Index updates() const { return updates_; }
  void set_updates(Index updates) { updates_ = updates; }
  const State& state() const { return state_; }

  void start_average(const Exec& ex);
  // Parameters and average change places; call it again to undo. Without an average, does nothing.
  void swap_average(const Exec& ex);

  static Index state_arrays(const TrainConfig& config) { return config.ema > 0 ? 3 : 2; }

 private:
  struct Group {  // neighbours in the table that are updated alike
    Index begin = 0, end = 0;
    double lr_factor = 1;
    bool decays = false;
  };
  Model& model_;
  const TrainConfig& config_;
  std::vector<Group> groups_;
  State state_;
  Index updates_ = 0;
};

}  // namespace ddl
