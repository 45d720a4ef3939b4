#include "io/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <thread>
#include <utility>

#include "core/error.h"

namespace ddl {
namespace {

constexpr std::size_t kBufferBytes = 1 << 16;
constexpr unsigned kExchange = 2;  // RENAME_EXCHANGE of renameat2(2); not every libc names it

[[noreturn]] void fail(const std::string& path, const char* what) {
  const int code = errno;
  const char* hint = code == ENOSPC || code == EDQUOT ? "; free some space and run the command again"
                     : code == EFBIG                  ? "; the file may not grow further (ulimit -f)"
                                                      : "";
  throw UserError("{}: {} ({}){}", path, what, std::strerror(code), hint);
}

// A descriptor closed on every way out.
struct Descriptor {
  int value;
  explicit Descriptor(int v) : value(v) {}
  ~Descriptor() {
    if (value >= 0) ::close(value);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
};

std::uint64_t size_of(int file, const std::string& path) {
  struct stat info {};
  if (::fstat(file, &info) != 0) fail(path, "cannot be examined");
  if (S_ISDIR(info.st_mode)) throw UserError("{}: is a folder, expected a file", path);
  return static_cast<std::uint64_t>(info.st_size);
}

std::string read_whole(int file, const std::string& path, std::uint64_t expected, std::uint64_t limit) {
  std::string contents;
  std::size_t filled = 0;
  while (expected <= limit && filled <= limit) {
    if (filled == contents.size())  // it grew, or its size is unknown
      contents.resize(filled == 0 && expected > 0 ? expected : filled + kBufferBytes);
    const ssize_t got = ::read(file, contents.data() + filled, contents.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(path, "cannot be read");
    if (got == 0) {
      contents.resize(filled);
      return contents;
    }
    filled += static_cast<std::size_t>(got);
  }
  throw UserError("{}: expected at most {} MB, found more; is it what you meant? Then give less of it", path,
                  limit >> 20);
}

// A dataset may have more files than a process may hold open at first.
int open_to_hold(const std::string& path) {
  int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct rlimit files {};
  if (file < 0 && errno == EMFILE && ::getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &files);
    file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  }
  if (file < 0) fail(path, "cannot be opened");
  return file;
}

void write_all(int file, const std::string& path, const char* data, std::size_t bytes) {
  while (bytes > 0) {
    const ssize_t done = ::write(file, data, bytes);
    if (done < 0) {
      if (errno == EINTR) continue;
      fail(path, "cannot be written");
    }
    data += done;
    bytes -= static_cast<std::size_t>(done);
  }
}

constexpr std::string_view kTemporary = ".tmp";

// The process id keeps two programs that write the same file from sharing a temporary.
std::string temporary_name(const std::string& path) {
  return fmt::format("{}{}{}", path, kTemporary, ::getpid());
}

// Who writes a temporary file holds its lock, so one that can be locked was left by a process that was killed.
void remove_left_temporaries(const std::string& path) {
  const std::string beginning = std::filesystem::path(path).filename().string() + std::string(kTemporary);
  std::error_code error;
  for (std::filesystem::directory_iterator entry(parent_folder(path), error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.size() == beginning.size() || !name.starts_with(beginning) ||
        name.find_first_not_of("0123456789", beginning.size()) != name.npos)
      continue;
    const Descriptor file(::open(entry->path().c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (file.value >= 0 && ::flock(file.value, LOCK_EX | LOCK_NB) == 0) ::unlink(entry->path().c_str());
  }
}

// Exists and is no plain file: a pipe, a device, or a folder, which FileWriter refuses.
bool is_special(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0) return !S_ISREG(info.st_mode);
  if (errno != ENOENT) fail(path, "cannot be opened for writing");
  return false;
}

// Said before a temporary is made, whose name would mean nothing to the reader.
std::string in_a_folder(std::string path) {
  std::error_code error;
  if (const std::string folder = parent_folder(path); !std::filesystem::exists(folder, error) && !error)
    throw UserError("{}: cannot be written: there is no folder {}", path, folder);
  return path;
}

// What the symbolic links lead to, whether it is there yet or not. The name of a pipe or a device stays as it
// is: what /dev/stdout leads to may have no name that could be opened.
std::string follow_links(std::string path) {
  if (is_special(path)) return path;  // also finds links in a circle
  while (std::filesystem::is_symlink(path))
    path = (std::filesystem::path(parent_folder(path)) / std::filesystem::read_symlink(path)).string();
  return path;
}

}  // namespace

bool still_named(int file, const std::string& path) {
  struct stat open {
  }, named{};
  return ::fstat(file, &open) == 0 && ::stat(path.c_str(), &named) == 0 && open.st_ino == named.st_ino &&
         open.st_dev == named.st_dev;
}

std::string read_file(const std::string& path, std::uint64_t limit) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.value < 0) fail(path, "cannot be opened");
  return read_whole(file.value, path, size_of(file.value, path), limit);
}

std::string read_standard_input(std::uint64_t limit) {
  return read_whole(STDIN_FILENO, "standard input", 0, limit);
}

MappedFile::MappedFile(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.value < 0) fail(path, "cannot be opened");
  size_ = size_of(file.value, path);
  if (size_ == 0) return;
  void* memory = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.value, 0);
  if (memory == MAP_FAILED) fail(path, "cannot be mapped into memory");
  data_ = static_cast<const std::byte*>(memory);
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void MappedFile::release() const {
  if (data_) ::madvise(const_cast<std::byte*>(data_), size_, MADV_DONTNEED);
}

SteadyFile::SteadyFile(const std::string& path) : path_(path), file_(open_to_hold(path)) {
  struct stat info {};
  try {
    size_ = size_of(file_, path);
    if (::fstat(file_, &info) != 0) fail(path, "cannot be examined");
  } catch (...) {
    ::close(file_);
    throw;
  }
  changed_s_ = info.st_mtim.tv_sec;
  changed_ns_ = info.st_mtim.tv_nsec;
}

SteadyFile::~SteadyFile() {
  if (file_ >= 0) ::close(file_);
}

SteadyFile::SteadyFile(SteadyFile&& other) noexcept
    : path_(std::move(other.path_)),
      file_(std::exchange(other.file_, -1)),
      size_(std::exchange(other.size_, 0)),
      changed_s_(other.changed_s_),
      changed_ns_(other.changed_ns_) {}

SteadyFile& SteadyFile::operator=(SteadyFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(file_, other.file_);
  std::swap(size_, other.size_);
  std::swap(changed_s_, other.changed_s_);
  std::swap(changed_ns_, other.changed_ns_);
  return *this;
}

void SteadyFile::read(std::uint64_t offset, void* out, std::size_t bytes) const {
  DDL_CHECK(offset + bytes <= size_, "offset {} + {} of {}", offset, bytes, size_);
  if (bytes == 0) return;
  auto* to = static_cast<char*>(out);
  bool ended = false;
  while (bytes > 0 && !ended) {
    const ssize_t got = ::pread(file_, to, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(path_, "cannot be read");
    ended = got == 0;
    to += got;
    offset += static_cast<std::uint64_t>(got);
    bytes -= static_cast<std::size_t>(got);
  }
  // After reading: a change before this moment shows here, and a later one has not been read.
  struct stat info {};
  if (::fstat(file_, &info) != 0) fail(path_, "cannot be examined");
  const auto found = static_cast<std::uint64_t>(info.st_size);
  if (found != size_)
    throw UserError("{}: changed while it was in use: it had {} bytes and has {} now; put the old file back",
                    path_, size_, found);
  if (ended) throw UserError("{}: cannot be read: it ends at byte {} of {}", path_, offset, size_);
  if (info.st_mtim.tv_sec != changed_s_ || info.st_mtim.tv_nsec != changed_ns_)
    throw UserError("{}: changed while it was in use: something has written to it; put the old file back",
                    path_);
}

FileWriter::FileWriter(std::string path, Lock lock) : path_(std::move(path)) {
  constexpr int kAttempts = 100;  // whoever removes what others left holds a lock for an instant
  const auto open_file = [&](int flags) {
    file_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0666);
    if (file_ < 0) fail(path_, "cannot be opened for writing");
  };
  if (lock == Lock::kNo) {
    open_file(O_TRUNC);
    return;
  }
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    open_file(0);
    // Else there are no locks
    const bool busy = ::flock(file_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (!busy && still_named(file_, path_)) {
      if (::ftruncate(file_, 0) == 0) return;
      ::close(file_);
      fail(path_, "cannot be opened for writing");
    }
    ::close(file_);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  throw UserError("{}: another process is writing it", path_);
}

FileWriter::~FileWriter() { ::close(file_); }

void FileWriter::write(const void* data, std::size_t bytes) {
  const char* from = static_cast<const char*>(data);
  written_ += bytes;
  if (buffer_.size() + bytes > kBufferBytes) flush();
  if (bytes >= kBufferBytes)
    write_all(file_, path_, from, bytes);
  else
    buffer_.insert(buffer_.end(), from, from + bytes);
}

void FileWriter::write_at(std::uint64_t offset, const void* data, std::size_t bytes) {
  DDL_CHECK(offset + bytes <= written_, "offset {} + {} of {}", offset, bytes, written_);
  flush();
  if (::pwrite(file_, data, bytes, static_cast<off_t>(offset)) != static_cast<ssize_t>(bytes))
    fail(path_, "cannot be written");
}

void FileWriter::flush() {
  write_all(file_, path_, buffer_.data(), buffer_.size());
  buffer_.clear();
}

void FileWriter::sync() {
  flush();
  // Pipes and devices cannot be synced, and need not be.
  if (::fsync(file_) != 0 && errno != EINVAL && errno != EROFS) fail(path_, "cannot be written to disk");
}

AtomicFile::AtomicFile(std::string path)
    : target_(in_a_folder(follow_links(std::move(path)))),
      writer_(is_special(target_) ? target_ : temporary_name(target_),
              is_special(target_) ? FileWriter::Lock::kNo : FileWriter::Lock::kYes) {
  if (renames()) remove_left_temporaries(target_);
}

AtomicFile::~AtomicFile() {
  if (!committed_ && renames()) ::unlink(writer_.path().c_str());
}

void AtomicFile::commit() {
  writer_.sync();
  if (renames()) rename_path(writer_.path(), target_);
  committed_ = true;
}

void write_file_atomic(const std::string& path, std::string_view contents) {
  AtomicFile file(path);
  file.write(contents);
  file.commit();
}

void make_folders(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) throw UserError("{}: the folder cannot be created ({})", path, error.message());
}

void sync_folder(const std::string& path) {
  const Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.value < 0) fail(path, "cannot be opened");
  // Some file systems cannot sync a folder (EINVAL); they have nothing better to offer.
  if (::fsync(folder.value) != 0 && errno != EINVAL) fail(path, "cannot be written to disk");
}

void remove_all(const std::string& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (error) throw UserError("{}: cannot be removed ({})", path, error.message());
}

void rename_path(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) fail(to, "cannot be put in place");
  sync_folder(parent_folder(to));
}

void exchange_paths(const std::string& a, const std::string& b) {
  if (::syscall(SYS_renameat2, AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), kExchange) != 0) {
    if (errno != EINVAL && errno != ENOSYS) fail(b, "cannot be put in place");
    // A file system without the exchange: three steps, between which `b` is absent for an instant.
    const std::string aside = b + ".old" + std::to_string(::getpid());
    rename_path(b, aside);
    rename_path(a, b);
    rename_path(aside, a);
  }
  sync_folder(parent_folder(b));
}

std::string parent_folder(const std::string& path) {
  std::filesystem::path p(path);
  if (!p.has_filename()) p = p.parent_path();  // "a/b/" -> "a/b"
  const std::string parent = p.parent_path().string();
  return parent.empty() ? "." : parent;
}

}  // namespace ddl
