// Loss over a fixed set of windows, the same for every run on the same data, and, where the data knows
// answers, how many of them the model gives.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/exec.h"
#include "core/record.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "dist/comm.h"
#include "model/trainable.h"

namespace ddl {

struct ValidationResult {
  double loss = 0;  // mean over the targets, in nats
  Index targets = 0;
  Index answer_tokens = 0, correct_answer_tokens = 0;
  Index answers = 0, exact_answers = 0;  // whole answers; those cut off by a window's end are left out

  Json json() const;  // "loss", "perplexity", "targets", and with answers "answer_accuracy", "exact_answers"
};

class Validator {
 public:
  // The data must outlive it. `windows` is the most to use.
  Validator(const Dataset& data, Index context, Index windows);

  bool possible() const { return windows_.has_value(); }  // false: no validation split, or one too short
  Index windows() const { return windows_ ? windows_->count() : 0; }
  // Several ranks share out the batches, and each has the whole result.
  ValidationResult run(TrainableModel& model, const Exec& ex, Comm& comm = alone());

 private:
  std::optional<FixedWindows> windows_;
  Batch batch_;
  std::vector<float> loss_N_;
  std::vector<std::uint8_t> correct_N_;
};

}  // namespace ddl
