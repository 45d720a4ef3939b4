// The folder of a run:
//   config.toml        the resolved configuration; written last when a run begins: with it, there is a run
//   run.json           what the run began with and must not change: data and tokenizer
//   metrics.jsonl      one record per event
//   checkpoints/       step-NNNNNNNN/
//   tensorboard/       event files, where log.tensorboard asks for them
//   .lock              held while a process trains here
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/error.h"
#include "core/record.h"

namespace ddl {

inline constexpr std::uint64_t kMetricsBytes = std::uint64_t{16} << 30;  // of the longest metrics.jsonl

// Another process trains in the folder.
struct BusyRunError : UserError {
  using UserError::UserError;
};

class RunFolder {
 public:
  enum class Purpose { kNew, kResume };
  // Creates the folder for a new run, locks it either way. Throws UserError where another process holds it,
  // where a new run would meet an old one or files of others, and where there is nothing to resume.
  RunFolder(std::string path, Purpose purpose);
  ~RunFolder();  // removes the folder of a new run that wrote nothing
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string checkpoints() const { return path_ + "/checkpoints"; }
  std::string metrics() const { return path_ + "/metrics.jsonl"; }
  std::string tensorboard() const { return path_ + "/tensorboard"; }
  std::string config() const { return path_ + "/config.toml"; }
  std::string identity() const { return path_ + "/run.json"; }

  bool is_there() const;  // and still the one that was locked

  // Drops the records of steps after `step` (they will be written again) and a last line cut in the middle.
  void rewind_metrics(long step) const;

 private:
  void clear_unless_begun() const;

  std::string path_;
  Purpose purpose_;
  bool is_made_here_ = false;
  int lock_ = -1;
};

}  // namespace ddl
