// What a checkpoint of a run holds, and how it is written without stopping the run: the arrays are copied,
// and a thread writes the copy.
//   model.safetensors        parameters under the model's names, f32
//   optimizer.safetensors    "STATE.NAME" for every state of the optimizer and every parameter it applies to;
//                            AdamW's are "exp_avg.NAME" and "exp_avg_sq.NAME"
//   average.safetensors      with train.ema: the averaged weights under the model's names
//   config.json, generation_config.json, tokenizer.json, tokenizer_config.json
//   trainer.json             step, loader state, seeds, best validation, configuration
//   manifest.json            sizes and hashes of all others
#pragma once

#include <atomic>
#include <exception>
#include <map>
#include <optional>
#include <string>
#include <thread>

#include "core/arena.h"
#include "core/record.h"
#include "train/snapshot.h"
#include "train/trainer.h"

namespace ddl {

// Files that are the same in every checkpoint of a run, by name.
using FixedFiles = std::map<std::string, std::string>;
// config.json, generation_config.json and the data's tokenizer.
FixedFiles fixed_files(const ModelConfig& model, const Dataset& data);

struct SaveReport {
  Index step = 0;
  std::string folder;
  double copy_s = 0, write_s = 0;
  std::size_t bytes = 0;
};

class CheckpointSaver {
 public:
  // `parent` is the folder of checkpoints. `identity` goes into trainer.json (see run_identity).
  CheckpointSaver(std::string parent, Trainer& trainer, FixedFiles files, Json identity);
  ~CheckpointSaver();  // waits
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  enum class Prune { kYes, kNo };
  // Waits for an earlier save, copies, and returns while the copy is written (or writes at once, without
  // checkpoint.background). Old checkpoints go only after the new one is complete. Throws UserError, also
  // for an earlier save that failed in the background.
  // With train.zero the other ranks call send_state() at the same time.
  void save(Prune prune, const Exec& ex);
  // Waits for the save under way; throws what stopped it.
  void wait();
  // The report of a save that has finished since the last call. Does not wait.
  std::optional<SaveReport> finished();
  std::size_t copy_bytes() const {
    return snapshot_ ? snapshot_->bytes() : 0;
  }  // of what background saving takes

 private:
  void write(const CheckpointArrays& arrays, const std::string& trainer_json, Index step, Prune prune);
  std::size_t expected_bytes() const;

  const std::string parent_;
  Trainer& trainer_;
  const FixedFiles files_;
  const Json identity_;
  std::optional<Snapshot> snapshot_;  // empty where nothing is written in the background
  std::thread thread_;
  std::exception_ptr error_;  // written by the thread, read after joining it
  std::optional<SaveReport> report_;
  std::atomic<bool> done_{false};
};

// What a rank other than 0 does for a checkpoint: with train.zero it sends its part of the optimizer's state.
void send_state(Trainer& trainer);

// Reads a verified checkpoint into a trainer of the same model. Throws UserError naming the file and what
// is wrong with it.
void load_checkpoint(const std::string& folder, Trainer& trainer);

// trainer.json of a checkpoint. Throws UserError.
Json read_trainer_json(const std::string& folder);

// Renames the checkpoints of `first` and later steps to NAME.WHY: they stay on the disk, but are no longer
// checkpoints of the run. Returns their folders.
std::vector<std::string> set_aside_checkpoints(const std::string& parent, Index first,
                                               const std::string& why);

// Keeps the newest `keep_last`, of those validated at their own step the `keep_best` of lowest loss, and the one of
// `keep_step` (-1: none).
void prune_checkpoints(const std::string& parent, Index keep_last, Index keep_best, Index keep_step = -1);

}  // namespace ddl
