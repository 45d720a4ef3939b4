// A folder that is filled beside its final name and put there in one step, by one process at a time. It grows
// in TARGET.partial/new; the marker beside it says, at every moment until TARGET.partial is gone, whose that
// is.
#pragma once

#include <functional>
#include <string>

namespace ddl {

// Lies in a folder that is still being written; such a folder is nobody's dataset or model.
inline constexpr const char* kIncompleteMarker = ".ddl-incomplete";

class PartialFolder {
 public:
  // Is given a target with something in it; throws UserError unless that may be replaced.
  using CheckExisting = std::function<void(const std::string& target)>;

  // Refuses, before any work: a target that is a file, or that `check_existing` refuses; a folder
  // TARGET.partial that another process is writing; and one that is not ours. What an interrupted run left
  // there goes.
  PartialFolder(std::string target, CheckExisting check_existing);
  ~PartialFolder();  // removes what was not committed, or what was replaced
  PartialFolder(const PartialFolder&) = delete;
  PartialFolder& operator=(const PartialFolder&) = delete;

  const std::string& path() const { return path_; }
  void commit();  // everything in it must be on disk already

 private:
  void check_target() const;
  void lock();
  void mark();
  void clear() const;
  std::string target_, workplace_, marker_path_, path_;
  CheckExisting check_existing_;
  int lock_ = -1;  // of TARGET.partial
};

}  // namespace ddl
