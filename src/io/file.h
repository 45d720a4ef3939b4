// Files as a whole: reading, mapping, and writing so that a file either exists complete or not at all.
// Every failure is a UserError that names the file and what the system said.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ddl {

// The largest file that is read whole where nothing else is said. A larger one is not what it was taken for.
inline constexpr std::uint64_t kWholeFileBytes = std::uint64_t{64} << 20;
std::string read_file(const std::string& path, std::uint64_t limit = kWholeFileBytes);
std::string read_standard_input(std::uint64_t limit = kWholeFileBytes);

// A file's bytes, mapped read-only. An empty file maps to no bytes. Movable, not copyable.
class MappedFile {
 public:
  MappedFile() = default;
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  void release() const;  // drops the pages held in memory; they are read again when touched

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// A file that is read at any place and must stay what it was when it was opened. Where another process cuts a
// mapped file short, reading it ends the program; this says what became of the file instead.
class SteadyFile {
 public:
  SteadyFile() = default;  // of no bytes
  explicit SteadyFile(const std::string& path);
  ~SteadyFile();
  SteadyFile(SteadyFile&& other) noexcept;
  SteadyFile& operator=(SteadyFile&& other) noexcept;
  SteadyFile(const SteadyFile&) = delete;
  SteadyFile& operator=(const SteadyFile&) = delete;

  std::uint64_t size() const { return size_; }
  // All of these bytes, from any thread. Throws UserError where the file has changed since it was opened.
  void read(std::uint64_t offset, void* out, std::size_t bytes) const;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int file_ = -1;
  std::uint64_t size_ = 0;
  std::int64_t changed_s_ = 0, changed_ns_ = 0;  // the time of its last change
};

// Appends to a file through a buffer. Closing without flush() drops what is still buffered; bytes that reach
// the disk without an error do so only after sync().
class FileWriter {
 public:
  enum class Lock { kNo, kYes };  // held until the file is closed, which the end of the process does, too
  explicit FileWriter(std::string path, Lock lock = Lock::kNo);  // creates or truncates
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void write(const void* data, std::size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  void write_at(std::uint64_t offset, const void* data, std::size_t bytes);  // over what is written already
  void flush();
  void sync();  // flush, then onto the disk
  std::uint64_t bytes_written() const { return written_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int file_ = -1;
  std::uint64_t written_ = 0;
  std::vector<char> buffer_;
};

// Writes to a temporary file in the folder of `path`. commit() syncs it, renames it to `path` and syncs the
// folder. Destroyed without commit(), it leaves `path` as it was and no temporary file; what a killed process
// left is removed by the next one that writes `path`. A symbolic link stays one: its target is replaced. A pipe
// or a device cannot be replaced in this way and is written to directly.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::string_view text) { writer_.write(text); }
  void write(const void* data, std::size_t bytes) { writer_.write(data, bytes); }
  void commit();

 private:
  bool renames() const { return writer_.path() != target_; }
  std::string target_;
  FileWriter writer_;
  bool committed_ = false;
};

void write_file_atomic(const std::string& path, std::string_view contents);

void make_folders(const std::string& path);  // and its parents; an existing folder is fine
void sync_folder(const std::string& path);   // makes names created or renamed in it survive a power cut
void remove_all(const std::string& path);    // a file or a folder with everything in it; absent is fine
// The two change names in one instant where the system can; `b` must exist.
void exchange_paths(const std::string& a, const std::string& b);
void rename_path(const std::string& from, const std::string& to);  // and syncs the folder of `to`
std::string parent_folder(const std::string& path);                // "." where there is none
// Whether `path` still names the open file: another process may have removed or replaced it.
bool still_named(int file, const std::string& path);

}  // namespace ddl
