// How a run begins: new, from a model's weights, resumed, or as a branch of another run. Configuration, data, folder
// and the checkpoint to load are settled here, and with all ranks, before anything is computed.
#pragma once

#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "core/exec.h"
#include "core/json.h"
#include "data/dataset.h"
#include "dist/comm.h"
#include "io/checkpoint_folder.h"
#include "model/stored_model.h"
#include "train/run.h"
#include "train/run_config.h"
#include "train/run_folder.h"

namespace ddl {

class RunStart {
 public:
  // Throws UserError on every rank where one of them cannot begin.
  RunStart(const RunRequest& request, Comm& comm, const Exec& ex);

  std::string out;  // the run's folder
  RunConfig config;
  std::vector<OptionChange> changes;  // against the run that is continued
  std::optional<RunFolder> folder;    // held by rank 0 alone
  std::optional<StoredModel> model;   // weights to begin with
  std::optional<Dataset> data;
  Json identity;                              // what the run must not change: data and tokenizer
  std::optional<CheckpointEntry> checkpoint;  // to continue from
  std::vector<std::string> rejected;          // why newer checkpoints were not accepted

 private:
  void prepare();
  void join();
  void load_config(const std::string& stored_toml);
  void open_resumed();
  void open_branch();
  void copy_from_trunk(const CheckpointEntry& from);
  void settle_with_ranks(const std::exception_ptr& failed);

  const RunRequest& request_;
  Comm& comm_;
  const Exec ex_;
};

// Whatever is wrong with a file of the run's own is damage.
template <class Read>
auto reading_the_run(Read&& read) {
  try {
    return read();
  } catch (const UserError& error) {
    throw DamagedRunError("{}", error.what());
  }
}

}  // namespace ddl
