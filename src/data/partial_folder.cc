#include "data/partial_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <filesystem>

#include "core/error.h"
#include "io/file.h"

namespace ddl {

namespace fs = std::filesystem;

namespace {

// What a link leads to is not ours to clear.
void refuse_link(const std::string& path) {
  std::error_code ignored;
  if (fs::is_symlink(fs::symlink_status(path, ignored)))
    throw UserError(
        "{}: expected nothing here, or what an interrupted run left; found a symbolic link: move it "
        "away, or choose another --out",
        path);
}

}  // namespace

PartialFolder::PartialFolder(std::string target, CheckExisting check_existing)
    : target_(std::move(target)), check_existing_(std::move(check_existing)) {
  while (target_.size() > 1 && target_.back() == '/') target_.pop_back();
  workplace_ = target_ + ".partial";
  marker_path_ = workplace_ + "/" + kIncompleteMarker;
  path_ = workplace_ + "/new";
  check_target();
  refuse_link(workplace_);
  make_folders(workplace_);
  lock_ = ::open(workplace_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (lock_ < 0) throw UserError("{}: cannot be opened ({})", workplace_, std::strerror(errno));
  try {
    lock();
    mark();
    clear();
    make_folders(path_);
  } catch (...) {
    ::close(lock_);
    throw;
  }
}

void PartialFolder::check_target() const {
  if (!fs::exists(target_)) return;
  if (!fs::is_directory(target_)) throw UserError("{}: is a file, expected a folder", target_);
  if (!fs::is_empty(target_)) check_existing_(target_);
}

void PartialFolder::lock() {
  // The folder just locked must still exist: the last holder of the lock may have finished and removed it.
  struct stat locked {
  }, named{};
  if (::flock(lock_, LOCK_EX | LOCK_NB) != 0 || ::fstat(lock_, &locked) != 0 ||
      ::lstat(workplace_.c_str(), &named) != 0 || locked.st_ino != named.st_ino ||
      locked.st_dev != named.st_dev)
    throw UserError("{}: another process is writing it", workplace_);
}

// The marker is written before anything else and removed last. So a folder without one is not ours.
void PartialFolder::mark() {
  refuse_link(marker_path_);
  if (!fs::exists(marker_path_) && !fs::is_empty(workplace_))
    throw UserError(
        "{}: expected nothing here, or what an interrupted run left (with {}); found a folder of another "
        "kind: move it away, or choose another --out",
        workplace_, kIncompleteMarker);
  FileWriter(marker_path_).sync();
}

void PartialFolder::clear() const {
  for (const auto& entry : fs::directory_iterator(workplace_))
    if (entry.path() != marker_path_) remove_all(entry.path().string());
}

// A kill in the middle leaves the marker, and the next run clears the rest.
PartialFolder::~PartialFolder() {
  try {
    clear();
    remove_all(workplace_);
  } catch (const std::exception&) {
  }
  ::close(lock_);
}

void PartialFolder::commit() {
  check_target();  // it may have appeared since
  sync_folder(path_);
  if (fs::exists(target_) && !fs::is_empty(target_))
    exchange_paths(path_, target_);
  else
    rename_path(path_, target_);
}

}  // namespace ddl
