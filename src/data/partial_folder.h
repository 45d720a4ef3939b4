// A folder that is filled under a temporary name and renamed to TARGET in one step, by one process at a time.
// It grows in TARGET.partial/new. Until TARGET.partial is gone, a marker next to `new` says who made it.
#pragma once

#include <functional>
#include <string>

namespace ddl {

// The name of the marker file. A folder with it is incomplete and must not be read as a dataset or model.
inline constexpr const char* kIncompleteMarker = ".ddl-incomplete";

class PartialFolder {
 public:
  // Is given a target with something in it; throws UserError unless that may be replaced.
  using CheckExisting = std::function<void(const std::string& target)>;

  // Refuses, before any work: a target that is a file, or that `check_existing` refuses; a folder
  // TARGET.partial that another process is writing; one that is not ours; and a symbolic link of that name,
  // which may lead to a folder of others. Removes what an interrupted run left in it.
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
