#include "io/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
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

// The process id keeps two programs that write the same file from sharing a temporary.
std::string temporary_name(const std::string& path) { return path + ".tmp" + std::to_string(::getpid()); }

// Exists and is no plain file: a pipe, a device, or a folder, which FileWriter refuses.
bool is_special(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0) return !S_ISREG(info.st_mode);
  if (errno != ENOENT) fail(path, "cannot be opened for writing");
  return false;
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

std::string read_file(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.value < 0) fail(path, "cannot be opened");
  std::string contents(size_of(file.value, path), '\0');
  std::size_t filled = 0;
  for (;;) {
    if (filled == contents.size()) contents.resize(filled + kBufferBytes);  // it grew, or its size is unknown
    const ssize_t got = ::read(file.value, contents.data() + filled, contents.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(path, "cannot be read");
    if (got == 0) break;
    filled += static_cast<std::size_t>(got);
  }
  contents.resize(filled);
  return contents;
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

FileWriter::FileWriter(std::string path) : path_(std::move(path)) {
  file_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file_ < 0) fail(path_, "cannot be opened for writing");
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
    : target_(follow_links(std::move(path))),
      writer_(is_special(target_) ? target_ : temporary_name(target_)) {}

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
