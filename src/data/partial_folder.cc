#include "data/partial_folder.h"

#include <fcntl.h>
#include <sys/file.h>
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
    : target_(std::move(target)) {
  while (target_.size() > 1 && target_.back() == '/') target_.pop_back();
  path_ = target_ + ".partial";
  marker_path_ = path_ + "/" + marker;
  if (fs::exists(target_) && !fs::is_directory(target_))
    throw UserError("{}: exists and is not a folder", target_);
  if (fs::exists(target_) && !fs::is_empty(target_)) {
    if (!fs::exists(target_ + "/" + manifest))
      throw UserError("{}: exists and holds other things; choose another folder", target_);
    if (existing == Existing::kRefuse)
      throw UserError("{}: a dataset is there already; --force replaces it", target_);
  }
  make_folders(path_);
  lock_ = ::open(marker_path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (lock_ < 0) throw UserError("{}: cannot be opened ({})", marker_path_, std::strerror(errno));
  if (::flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    ::close(lock_);
    throw UserError("{}: another process is writing this dataset", path_);
  }
  // What an interrupted run left goes, but for the marker, which stays first and last.
  for (const auto& entry : fs::directory_iterator(path_))
    if (entry.path().filename() != marker) remove_all(entry.path().string());
}

PartialFolder::~PartialFolder() {
  if (!committed_) {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  ::close(lock_);
}

void PartialFolder::commit() {
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
