// The step: micro-batches accumulated in f32, one global norm, one fused update. Everything a step does is a
// function of the configuration, the data and the step's number, which is what makes a resumed run repeat
// the uninterrupted one bit for bit. Several ranks share out the micro-batches of a step: the gradients are
// summed over them, and each makes the same update.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "core/exec.h"
#include "core/function_ref.h"
#include "core/json_fields.h"
#include "core/record.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "dist/comm.h"
#include "model/trainable.h"
#include "train/run_config.h"
#include "train/validation.h"

namespace ddl {

// What a run counts; stored with every checkpoint.
struct Progress {
  Index step = 0;  // updates so far, skipped ones included: the number of the next
  Index tokens = 0;
  double flops = 0;      // of forward and backward, exact from the shapes
  double elapsed_s = 0;  // spent training, over all sessions of the run
  Index skipped = 0;
  Index skipped_in_a_row = 0;  // of this session: a resumed run has all its attempts before it
  struct Validated {
    Index step = 0;
    double loss = 0;
  };
  std::optional<Validated> last, best;
  Index validations_since_best = 0;

  Json json() const;
  static Progress parse(const JsonFields& fields);  // throws UserError
};

class Trainer {
 public:
  // The configuration must be resolved and outlive the trainer, as must the data. Throws UserError, with the
  // numbers, where the machine's memory is too small for all of it.
  // So must the ranks' connection; every rank makes the same calls.
  Trainer(const RunConfig& config, const Dataset& data, const Exec& ex, Comm& comm = alone());

  // One update; returns its record. A loss or gradient that is not finite leaves parameters and optimizer as
  // they were, and the record says "skipped". Between micro-batches it asks `give_up`; where that says yes, and
  // where the data cannot be read, the step leaves no trace, and a null record is returned or UserError thrown. With several
  // ranks it does not ask, and a rank that is lost is a CommError, again without a trace.
  Json step(FunctionRef<bool()> give_up = [] { return false; });
  // Over the fixed windows, with the average of weights where there is one. Null where the data has no
  // validation split.
  Json validate();
  // The record of what the rule says about the tokens of the last step, gates above all; null for rules without series.
  Json gates() const;

  // Measures what a step's matrix multiplications take alone; steps then report their share of it. Seconds.
  // Where a step turns out to be faster, the measurement was disturbed, and its record says "floor_busy".
  double measure_floor();

  const RunConfig& config() const { return config_; }
  Comm& comm() const { return comm_; }
  bool shares_state() const { return config_.train.zero && !comm_.alone(); }  // train/shared_state.h
  const Progress& progress() const { return progress_; }
  TrainableModel& model() { return *model_; }
  const Loader& loader() const { return loader_; }
  const Validator& validator() const { return validator_; }
  double compute_seconds() const { return compute_seconds_; }        // in forward, backward and update
  double validation_seconds() const { return validation_seconds_; }  // of this session

  // Where a checkpoint left off, after its arrays have been read into the model and the optimizer.
  void restore(const Progress& progress, Index updates);

 private:
  void add_floor_share(double step_seconds, Json& record);
  double exchange_losses(std::vector<double>& losses, double computed, Json& record);

  const RunConfig& config_;
  const Exec ex_;
  Comm& comm_;
  Loader loader_;
  Validator validator_;
  std::unique_ptr<TrainableModel> model_;
  Batch batch_;
  Progress progress_;
  double flops_per_token_ = 0, floor_seconds_ = 0;
  int floor_attempts_ = 2;  // how often it may be measured again
  double compute_seconds_ = 0, validation_seconds_ = 0;
};

}  // namespace ddl
