// Bytes of a file or of standard input, decompressed as they are read, in bounded memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace ddl {

enum class Compression {
  kNone,
  kGzip,  // any number of members one after another, as `cat a.gz b.gz` makes; zero padding at the end
  kZstd,  // any number of frames
  kAuto,  // by the name's end (.gz, .zst); standard input by its first bytes
};

class ByteStream {
 public:
  static constexpr const char* kStdin = "-";

  explicit ByteStream(const std::string& path, Compression compression = Compression::kAuto);
  ~ByteStream();
  ByteStream(const ByteStream&) = delete;
  ByteStream& operator=(const ByteStream&) = delete;

  // Up to `bytes` bytes; 0 at the end only. Throws UserError naming the file and the offset in the file
  // (before decompression) where it is truncated or damaged.
  std::size_t read(char* out, std::size_t bytes);

  std::uint64_t file_offset() const { return file_offset_; }  // bytes of the file consumed, for progress
  const std::string& name() const { return name_; }           // the path, or "standard input"

  struct Decoder;  // of one compression

 private:
  bool fill();  // more bytes of the file into input_; false at its end

  std::string name_;
  int file_ = -1;
  bool owns_file_ = false;
  std::vector<char> input_;
  std::size_t begin_ = 0, end_ = 0;  // what of input_ is not consumed yet
  std::uint64_t file_offset_ = 0;
  std::unique_ptr<Decoder> decoder_;  // null: plain
};

// The name without .gz or .zst.
std::string without_compression_suffix(const std::string& path);

}  // namespace ddl
