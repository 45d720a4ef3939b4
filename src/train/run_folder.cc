#include "train/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "core/error.h"
#include "io/file.h"

namespace ddl {
namespace {

namespace fs = std::filesystem;

// A new run begins in a folder of its own. The lock is the first file of a run: a folder that has it and no
// configuration belongs to one that ended before it began.
void refuse_a_folder_of_others(const std::string& path) {
  if (fs::exists(path + "/config.toml") || fs::exists(path + "/.lock")) return;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path, error))
    throw UserError("{}: is no run, but holds other files ({}); give --out a new or an empty folder", path,
                    entry.path().filename().string());
}

}  // namespace

RunFolder::RunFolder(std::string path, Purpose purpose) : path_(std::move(path)), purpose_(purpose) {
  const bool resume = purpose == Purpose::kResume;
  if (resume && !fs::is_directory(path_))
    throw UserError("{}: there is no run to resume; without --resume a new one is started", path_);
  if (resume && !fs::exists(config()))
    throw UserError("{}: there is no run to resume (no config.toml)", path_);
  if (!resume) refuse_a_folder_of_others(path_);
  is_made_here_ = !fs::exists(path_);
  make_folders(path_);
  const std::string lock_path = path_ + "/.lock";
  lock_ = ::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (lock_ < 0) throw UserError("{}: cannot be written ({})", lock_path, std::strerror(errno));
  try {
    // The system gives the lock back when the process ends, however it ends.
    if (::flock(lock_, LOCK_EX | LOCK_NB) != 0 || !is_there())
      throw BusyRunError("{}: another process is training here; wait for it, stop it, or use another --out",
                         path_);
    if (!resume && fs::exists(config()))
      throw UserError("{}: a run is here already; --resume continues it, another --out starts a new one",
                      path_);
  } catch (...) {
    ::close(lock_);
    throw;
  }
}

RunFolder::~RunFolder() {
  if (purpose_ == Purpose::kNew && is_there()) clear_unless_begun();
  ::close(lock_);
}

// A run that was refused leaves nothing, unless it had copied a branch. What is not its own stays: rmdir(2)
// takes only empty folders. The lock goes last, while it is held.
void RunFolder::clear_unless_begun() const {
  std::error_code error;
  if (fs::exists(config(), error)) return;
  ::rmdir(checkpoints().c_str());
  for (fs::directory_iterator at(path_, error), end; !error && at != end; at.increment(error))
    if (at->path().filename() != ".lock") return;
  if (error) return;
  ::unlink((path_ + "/.lock").c_str());
  if (is_made_here_) ::rmdir(path_.c_str());
}

bool RunFolder::is_there() const { return still_named(lock_, path_ + "/.lock"); }

void RunFolder::rewind_metrics(long step) const {
  if (!fs::exists(metrics())) return;
  std::istringstream lines(read_file(metrics(), kMetricsBytes));
  AtomicFile kept(metrics());
  for (std::string line; std::getline(lines, line);) {
    const Json record = parse_json(line);
    if (!record.is_object()) continue;
    if (record.contains("step") && record["step"].is_number_integer() && record["step"].get<long>() > step)
      continue;
    kept.write(line + "\n");
  }
  kept.commit();
}

}  // namespace ddl
