// A checkpoint exists completely or not at all. It is a folder step-NNNNNNNN that is written under a
// temporary name: every file is synced, manifest.json with their sizes and SHA-256 is written last, then the
// folder is renamed. Readers accept nothing without a valid manifest. So killing the program at any instant
// leaves the earlier checkpoints and no half of a new one.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/function_ref.h"
#include "core/index.h"
#include "core/record.h"
#include "io/safetensors.h"

namespace ddl {

class CheckpointWriter {
 public:
  // `parent` is the folder of checkpoints; it must exist.
  CheckpointWriter(std::string parent, Index step);
  ~CheckpointWriter();  // without commit(): removes what was written
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Each writes one file, hashes it on the way and syncs it. All throw UserError when the disk is full.
  void add_text(const std::string& name, std::string_view contents);
  void add_tensors(const std::string& name, std::span<const TensorToWrite> tensors);

  // From here on the checkpoint exists. A checkpoint of the same step is replaced. Returns its folder.
  std::string commit();

 private:
  struct File;
  void finish(File& file);
  std::string parent_, folder_;
  Index step_;
  Json files_ = Json::object();
  bool committed_ = false;
};

struct CheckpointEntry {
  Index step = 0;
  std::string folder;
};

std::string checkpoint_name(Index step);  // "step-00000042"

// Folders with the name of a checkpoint, oldest first, and of these the ones with a manifest. Reads no file.
std::vector<CheckpointEntry> list_checkpoint_folders(const std::string& parent);
std::vector<CheckpointEntry> list_checkpoints(const std::string& parent);

// Throws UserError naming the file that is missing, has another size or another hash. A reader that needs
// only some of the files has only those hashed.
using FileChoice = FunctionRef<bool(std::string_view file)>;
inline constexpr auto kEveryFile = [](std::string_view) { return true; };
void verify_checkpoint(const std::string& folder, FileChoice hashed = kEveryFile);

// The newest that verifies; why newer ones do not goes to `rejected` where given.
std::optional<CheckpointEntry> latest_valid_checkpoint(const std::string& parent,
                                                       std::vector<std::string>* rejected = nullptr,
                                                       FileChoice hashed = kEveryFile);

// Removes one so that no instant shows half of it as a checkpoint.
void remove_checkpoint(const std::string& folder);
// What killed programs left behind. Call it only while holding the run's lock.
void remove_unfinished_checkpoints(const std::string& parent);

}  // namespace ddl
