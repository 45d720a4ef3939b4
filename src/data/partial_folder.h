// A folder that is filled beside its final name and put there in one step, by one process at a time.
#pragma once

#include <string>

namespace ddl {

class PartialFolder {
 public:
  enum class Existing { kRefuse, kReplace };

  // Refuses, before any work: a `target` that exists with something in it, unless it holds `manifest` (that
  // is, was made by us) and may be replaced; and a partial folder another process is writing.
  PartialFolder(std::string target, const std::string& manifest, const std::string& marker,
                Existing existing);
  ~PartialFolder();  // removes what was not committed
  PartialFolder(const PartialFolder&) = delete;
  PartialFolder& operator=(const PartialFolder&) = delete;

  const std::string& path() const { return path_; }
  void commit();  // everything in it must be on disk already

 private:
  void check_target() const;
  std::string target_, path_, manifest_, marker_path_;
  Existing existing_;
  int lock_ = -1;  // of the folder itself, which keeps its lock when it gets its final name
  bool committed_ = false;
};

}  // namespace ddl
