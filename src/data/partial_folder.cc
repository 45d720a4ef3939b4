#include "data/partial_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "core/error.h"
#include "io/file.h"

namespace ddl {

namespace fs = std::filesystem;

PartialFolder::PartialFolder(std::string target, const std::string& manifest, const std::string& marker,
                             Existing existing)
    : target_(std::move(target)), manifest_(manifest), existing_(existing) {
  while (target_.size() > 1 && target_.back() == '/') target_.pop_back();
  path_ = target_ + ".partial";
  marker_path_ = path_ + "/" + marker;
  check_target();
  make_folders(path_);
  lock_ = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock_ < 0) throw UserError("{}: cannot be opened ({})", path_, std::strerror(errno));
  // The folder just locked must still have this name: whoever held the lock before may have finished and
  // renamed it.
  struct stat locked {
  }, named{};
  if (::flock(lock_, LOCK_EX | LOCK_NB) != 0 || ::fstat(lock_, &locked) != 0 ||
      ::stat(path_.c_str(), &named) != 0 || locked.st_ino != named.st_ino) {
    ::close(lock_);
    throw UserError("{}: another process is writing this dataset", path_);
  }
  FileWriter(marker_path_).sync();
  // What an interrupted run left goes, but for the marker, which is there first and last.
  for (const auto& entry : fs::directory_iterator(path_))
    if (entry.path() != marker_path_) remove_all(entry.path().string());
}

void PartialFolder::check_target() const {
  if (!fs::exists(target_)) return;
  if (!fs::is_directory(target_)) throw UserError("{}: exists and is not a folder", target_);
  if (fs::is_empty(target_)) return;
  if (!fs::exists(target_ + "/" + manifest_))
    throw UserError("{}: exists and holds other things; choose another folder", target_);
  if (existing_ == Existing::kRefuse)
    throw UserError("{}: a dataset is there already; --force replaces it", target_);
}

PartialFolder::~PartialFolder() {
  if (!committed_) {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  ::close(lock_);
}

void PartialFolder::commit() {
  check_target();  // it may have appeared since
  sync_folder(path_);
  fs::remove(marker_path_);
  sync_folder(path_);
  if (fs::exists(target_) && !fs::is_empty(target_)) {
    exchange_paths(path_, target_);
    remove_all(path_);  // the old one
  } else {
    rename_path(path_, target_);
  }
  committed_ = true;
}

}  // namespace ddl
