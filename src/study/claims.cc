#include "study/claims.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>

#include "core/error.h"
#include "core/json.h"
#include "core/machine.h"
#include "io/file.h"

namespace ddl {
namespace {

namespace fs = std::filesystem;
constexpr const char* kEnding = ".claim";

double modified(const struct stat& status) {
  return static_cast<double>(status.st_mtim.tv_sec) + 1e-9 * static_cast<double>(status.st_mtim.tv_nsec);
}

// The time of the file system, which is another machine's where the folder is shared.
double folder_time(const std::string& folder) {
  const std::string probe = fmt::format("{}/.clock-{}-{}", folder, machine_name(), ::getpid());
  write_file_atomic(probe, "");
  struct stat status {};
  const bool there = ::stat(probe.c_str(), &status) == 0;
  ::unlink(probe.c_str());
  return there ? modified(status) : 0;
}

// This machine since it was started: a name alone may be another container's, too.
std::string machine() {
  std::string boot = "unknown";
  try {
    boot = read_file("/proc/sys/kernel/random/boot_id");
  } catch (const UserError&) {
  }
  return machine_name() + " " + boot.substr(0, boot.find('\n'));
}

// Whether the owner of a claim is gone.
bool is_abandoned(const std::string& path, const std::string& folder) {
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return false;  // given back in this moment
  char text[512] = {};
  const ssize_t bytes = ::read(file, text, sizeof text - 1);
  const Json owner = parse_json(std::string_view(text, bytes > 0 ? static_cast<std::size_t>(bytes) : 0));
  struct stat status {};
  const bool has_status = ::fstat(file, &status) == 0;
  const bool from_here = owner.is_object() && owner.value("machine", "") == machine();
  const bool unlocked = ::flock(file, LOCK_EX | LOCK_NB) == 0;
  const bool locks_work = unlocked || errno == EWOULDBLOCK;
  ::close(file);  // and with it the lock
  if (locks_work && !unlocked) return false;
  if (from_here && locks_work) return true;
  // Another machine's locks may not show here; that nobody touches the file does.
  return has_status && folder_time(folder) - modified(status) > kStaleClaimSeconds;
}

// Takes the place of an owner that is gone. One at a time: a second one that found the old claim abandoned must
// look again, or it would remove the claim of the first.
bool take_over(const std::string& own, const std::string& path, const std::string& folder) {
  const std::string lock = folder + "/.takeover";
  const int file = ::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0) return false;
  bool linked = false;
  if (::flock(file, LOCK_EX) == 0 && is_abandoned(path, folder)) {
    ::unlink(path.c_str());
    linked = ::link(own.c_str(), path.c_str()) == 0;
  }
  ::close(file);
  return linked;
}

}  // namespace

std::unique_ptr<Claim> Claim::take(const std::string& folder, const std::string& name) {
  make_folders(folder);
  const std::string path = fmt::format("{}/{}{}", folder, name, kEnding);
  // Locked and written under another name, then linked: from its first instant the claim shows its owner.
  static std::atomic<int> count = 0;
  const std::string own = fmt::format("{}/.new-{}-{}-{}", folder, machine_name(), ::getpid(), ++count);
  const int file = ::open(own.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) throw UserError("{}: cannot be created ({})", own, std::strerror(errno));
  ::flock(file, LOCK_EX | LOCK_NB);
  const std::string owner = to_line(Json{{"machine", machine()}, {"pid", ::getpid()}}) + "\n";
  const bool written = ::write(file, owner.data(), owner.size()) == static_cast<ssize_t>(owner.size());
  bool linked = written && ::link(own.c_str(), path.c_str()) == 0;
  const int link_error = written && !linked ? errno : 0;
  if (link_error == EEXIST && is_abandoned(path, folder)) linked = take_over(own, path, folder);
  ::unlink(own.c_str());
  if (linked) return std::unique_ptr<Claim>(new Claim(path, file));
  ::close(file);
  if (!written) throw UserError("{}: cannot be written; is the disk full?", own);
  if (link_error != 0 && link_error != EEXIST)
    throw UserError(
        "{}: cannot be linked to ({}); a study needs a file system with hard links, so that no two workers "
        "take one trial",
        path, std::strerror(link_error));
  return nullptr;
}

Claim::Claim(std::string path, int file) : path_(std::move(path)), file_(file) {
  toucher_ = std::thread([this] { keep_touching(); });
}

Claim::~Claim() {
  {
    const std::lock_guard guard(mutex_);
    over_ = true;
  }
  wake_.notify_all();
  toucher_.join();
  if (still_named(file_, path_)) ::unlink(path_.c_str());  // after a long pause it may be another's
  ::close(file_);
}

void Claim::keep_touching() {
  std::unique_lock guard(mutex_);
  const auto interval = std::chrono::duration<double>(kClaimTouchSeconds);
  while (!wake_.wait_for(guard, interval, [this] { return over_; })) ::futimens(file_, nullptr);
}

void remove_abandoned_claims(const std::string& folder) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (entry.path().extension() == kEnding && is_abandoned(entry.path().string(), folder))
      ::unlink(entry.path().c_str());
}

long claims_held(const std::string& folder) {
  long held = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (entry.path().extension() == kEnding && !is_abandoned(entry.path().string(), folder)) ++held;
  return held;
}

}  // namespace ddl
