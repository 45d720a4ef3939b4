// Optimizers behind one interface: what is common to them (global norm, clipping, the check that all is
// finite, the average of weights) and, per optimizer, the update itself with its state. They work on arrays
// that a ParamTable lays out and know no model. How to add one: docs/add-an-optimizer.md.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/arena.h"
#include "core/bf16.h"
#include "core/exec.h"
#include "core/option_set.h"
#include "model/params.h"

namespace ddl {

// Which of the ranks that share out the optimizer's state this process is (train.zero).
struct StateShare {
  int rank = 0, ranks = 1;
};
// The rank that has the state of each tensor: runs of neighbours of about equal size.
std::vector<int> state_owners(const ParamTable& table, int ranks);

enum class Decays { kMatrices, kAllButNorms };
constexpr auto names_of(Decays) { return std::array{"matrices", "all-but-norms"}; }
enum class MupRates { kMatrices, kAllButEmbedding };
constexpr auto names_of(MupRates) { return std::array{"matrices", "all-but-embedding"}; }

// What every optimizer has, and the options of the chosen one.
struct OptimizerConfig {
  std::string name = "adamw";
  OptionSetPtr own;                          // of the type `name` has; see choose()
  double weight_decay = 0.1;                 // decoupled: p loses lr * weight_decay * p
  Decays decay = Decays::kMatrices;          // what decays
  MupRates mup_rates = MupRates::kMatrices;  // whose learning rate mup scales
  double clip = 1.0;                         // 0: off
  double average = 0;                        // decay of the average of weights; 0: none
  StateShare share;                          // no option: which ranks there are is not the run's to say

  OptimizerConfig() { choose("adamw"); }
  void choose(const std::string& optimizer);  // with its defaults; throws UserError where there is none such
  void describe(Options& options);            // keys "train.*"
};

// A tensor as an optimizer sees it.
struct TensorEntry {
  Index param = 0;  // in the table's list
  Index offset = 0, count = 0;
  Index rows = 1, cols = 1;  // of a matrix; anything else is one row
  bool hidden_matrix = false;
  double lr_factor = 1;
  bool decays = false;
};
// What decays, whose rate mup scales and what this rank updates, as the configuration chooses.
ParamTable with_optimizer_choices(const ParamTable& table, const OptimizerConfig& config);
// Those that are updated here.
std::vector<TensorEntry> tensor_entries(const ParamTable& table, double hidden_lr_factor);

// One kind of state, a float for each element of the tensors it applies to. In a checkpoint: "NAME.PARAM".
struct NamedArray {
  struct Tensor {
    Index param = 0;   // in the table's list
    Index offset = 0;  // in data
  };
  std::string name;
  float* data = nullptr;
  Index floats = 0;
  std::vector<Tensor> tensors;
};
// Takes one for `tensors`, which are in the table's order. Those that are neighbours in the table lie in the
// state as they do in the table, gap included, so that one loop may run over both; the state of all is the
// table's layout.
NamedArray take_state(const std::string& name, std::span<const TensorEntry> tensors, Arena& arena);

// What one update is given; the arrays are laid out by the table.
struct OptimizerStep {
  float* params = nullptr;
  float* grads = nullptr;
  bf16* copy = nullptr;   // may be null
  double lr = 0;          // of tensors with a factor of 1
  double grad_scale = 1;  // multiplies gradients first (clipping)
  double weight_decay = 0;
  Index number = 1;  // of this update, from 1
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  struct Update {
    double grad_norm = 0;  // before clipping
    bool applied = false;  // false: the norm was not finite, parameters and state are untouched
  };
  // One update at this rate. `copy` is the bf16 copy of the parameters, which follows them, or null.
  // Gradients are zero afterwards in any case.
  Update step(std::span<float> params, std::span<float> grads, bf16* copy, double lr, const Exec& ex);
  // With a share of the state, an update changes this rank's tensors alone; `exchange` then brings the others', before the
  // average follows them all.
  void set_exchange(std::function<void()> exchange) { exchange_ = std::move(exchange); }
  // Drops the gradients without an update.
  static void discard(std::span<float> grads, const Exec& ex);

  Index updates() const { return updates_; }
  void set_updates(Index updates) { updates_ = updates; }

  // All that must be kept for a later step to repeat, but the average. The arrays stay where they are.
  virtual std::vector<NamedArray> state() const = 0;
  // Floats of the state and the average: what a checkpoint holds besides the parameters.
  Index state_floats() const;

  bool has_average() const { return average_decay_ > 0; }
  // Laid out by the table; null where there is none.
  float* average() const { return average_; }
  // What the average keeps of itself at the last update: average = parameters + keep (average - parameters).
  double average_keeps() const;
  void start_average(std::span<const float> params, const Exec& ex);
  // Parameters and average change places; again to undo. Without an average nothing happens. A bf16 copy of
  // the parameters is the caller's to renew.
  void swap_average(std::span<float> params, const Exec& ex);

 protected:
  Optimizer(const ParamTable& table, const OptimizerConfig& config, Arena& arena);

  // Changes params, copy and state, and leaves the gradients zero.
  virtual void update(const OptimizerStep& step, const Exec& ex) = 0;

 private:
  const double weight_decay_, clip_, average_decay_;
  const Index table_floats_;
  const bool shared_;
  float* average_ = nullptr;
  std::function<void()> exchange_;
  Index updates_ = 0;
};

// State comes from `arena`. With a measuring arena the optimizer only tells what it would take:
// state_floats(), and all that it needs in the arena's used_bytes(). `hidden_lr_factor` multiplies the rate
// of hidden matrices (mup), or of all but the embedding (mup_rates). The optimizer is given a table in which
// `decays` and `scaled_rate` are as the configuration chooses.
std::unique_ptr<Optimizer> make_optimizer(const ParamTable& table, double hidden_lr_factor,
                                          const OptimizerConfig& config, Arena& arena);

// What the registry knows of an optimizer.
struct OptimizerEntry {
  std::string name;
  OptionSetPtr options;  // with their defaults
  std::unique_ptr<Optimizer> (*make)(const ParamTable& table, double hidden_lr_factor,
                                     const OptimizerConfig& config, Arena& arena) = nullptr;
};
std::vector<std::string> optimizer_names();
const OptimizerEntry& find_optimizer(const std::string& name);  // throws UserError
void register_optimizer(OptimizerEntry entry);                  // replaces one of the same name

}  // namespace ddl
