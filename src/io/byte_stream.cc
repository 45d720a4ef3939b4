#include "io/byte_stream.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/error.h"

namespace ddl {
namespace {

constexpr std::size_t kInputBytes = 1 << 18;

}  // namespace

// Consumes input and produces output; `at_end` says that stopping here is not a truncation.
struct ByteStream::Decoder {
  struct Progress {
    std::size_t consumed, produced;
  };
  virtual ~Decoder() = default;
  // Throws UserError(reason) where the bytes are damaged; the stream adds file and offset.
  virtual Progress decode(const char* in, std::size_t in_bytes, char* out, std::size_t out_bytes) = 0;
  virtual bool at_end() const = 0;
  virtual const char* format() const = 0;
};

namespace {

class GzipDecoder : public ByteStream::Decoder {
 public:
  GzipDecoder() {
    constexpr int kWindowBits = 15, kGzipOnly = 16;
    DDL_CHECK(inflateInit2(&state_, kWindowBits + kGzipOnly) == Z_OK, "zlib");
  }
  ~GzipDecoder() override { inflateEnd(&state_); }

  Progress decode(const char* in, std::size_t in_bytes, char* out, std::size_t out_bytes) override {
    if (finished_) {
      if (in_bytes > 0 && *in == 0) {  // padding, as tape archives leave
        const auto* end = std::find_if(in, in + in_bytes, [](char c) { return c != 0; });
        padded_ = true;
        return {static_cast<std::size_t>(end - in), 0};
      }
      if (padded_) throw UserError("bytes that are not gzip follow the compressed data");
      inflateReset(&state_);
      finished_ = false;
    }
    state_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in));
    state_.avail_in = static_cast<uInt>(std::min<std::size_t>(in_bytes, 1u << 30));
    state_.next_out = reinterpret_cast<Bytef*>(out);
    state_.avail_out = static_cast<uInt>(std::min<std::size_t>(out_bytes, 1u << 30));
    const uInt in_before = state_.avail_in, out_before = state_.avail_out;
    const int result = inflate(&state_, Z_NO_FLUSH);
    if (result == Z_STREAM_END)
      finished_ = true;
    else if (result != Z_OK && result != Z_BUF_ERROR)
      throw UserError("{}", state_.msg ? state_.msg : zError(result));
    return {in_before - state_.avail_in, out_before - state_.avail_out};
  }
  bool at_end() const override { return finished_; }
  const char* format() const override { return "gzip"; }

 private:
  z_stream state_{};
  bool finished_ = false, padded_ = false;
};

class ZstdDecoder : public ByteStream::Decoder {
 public:
  ZstdDecoder() : state_(ZSTD_createDStream()) { DDL_CHECK(state_ != nullptr, "zstd"); }
  ~ZstdDecoder() override { ZSTD_freeDStream(state_); }

  Progress decode(const char* in, std::size_t in_bytes, char* out, std::size_t out_bytes) override {
    ZSTD_inBuffer input{in, in_bytes, 0};
    ZSTD_outBuffer output{out, out_bytes, 0};
    const std::size_t result = ZSTD_decompressStream(state_, &output, &input);
    if (ZSTD_isError(result)) throw UserError("{}", ZSTD_getErrorName(result));
    finished_ = result == 0;
    return {input.pos, output.pos};
  }
  bool at_end() const override { return finished_; }
  const char* format() const override { return "zstd"; }

 private:
  ZSTD_DStream* state_;
  bool finished_ = false;
};

Compression by_name(const std::string& path) {
  if (path.ends_with(".gz")) return Compression::kGzip;
  if (path.ends_with(".zst")) return Compression::kZstd;
  return Compression::kNone;
}

Compression by_content(const char* bytes, std::size_t count) {
  if (count >= 2 && std::memcmp(bytes, "\x1f\x8b", 2) == 0) return Compression::kGzip;
  if (count >= 4 && std::memcmp(bytes, "\x28\xb5\x2f\xfd", 4) == 0) return Compression::kZstd;
  return Compression::kNone;
}

}  // namespace

ByteStream::ByteStream(const std::string& path, Compression compression) : input_(kInputBytes) {
  if (path == kStdin) {
    name_ = "standard input";
    file_ = STDIN_FILENO;
  } else {
    name_ = path;
    file_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file_ < 0) throw UserError("{}: cannot be opened ({})", path, std::strerror(errno));
    owns_file_ = true;
  }
  try {
    if (compression == Compression::kAuto) {
      compression = by_name(path);
      if (path == kStdin) {
        while (end_ < 4 && fill()) {
        }
        compression = by_content(input_.data(), end_);
      }
    }
    if (compression == Compression::kGzip) decoder_ = std::make_unique<GzipDecoder>();
    if (compression == Compression::kZstd) decoder_ = std::make_unique<ZstdDecoder>();
  } catch (...) {
    if (owns_file_) ::close(file_);
    throw;
  }
}

ByteStream::~ByteStream() {
  if (owns_file_) ::close(file_);
}

bool ByteStream::fill() {
  if (begin_ == end_) begin_ = end_ = 0;
  for (;;) {
    const ssize_t got = ::read(file_, input_.data() + end_, input_.size() - end_);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      throw UserError("{}: cannot be read at offset {} ({})", name_, file_offset_, std::strerror(errno));
    end_ += static_cast<std::size_t>(got);
    return got > 0;
  }
}

std::size_t ByteStream::read(char* out, std::size_t bytes) {
  if (bytes == 0) return 0;
  for (;;) {
    const bool more = begin_ < end_ || fill();
    if (!decoder_) {
      const std::size_t take = std::min(bytes, end_ - begin_);
      if (take > 0) std::memcpy(out, input_.data() + begin_, take);
      begin_ += take;
      file_offset_ += take;
      return take;
    }
    if (!more && decoder_->at_end()) return 0;
    Decoder::Progress progress{};
    try {
      progress = decoder_->decode(input_.data() + begin_, end_ - begin_, out, bytes);
    } catch (const UserError& error) {
      throw UserError("{}: not valid {} at offset {}: {}", name_, decoder_->format(), file_offset_,
                      error.what());
    }
    begin_ += progress.consumed;
    file_offset_ += progress.consumed;
    if (progress.produced > 0) return progress.produced;
    if (!more)  // the decoder wants more than there is
      throw UserError("{}: the {} data is truncated: it ends at offset {} in the middle of a stream", name_,
                      decoder_->format(), file_offset_);
  }
}

std::string without_compression_suffix(const std::string& path) {
  if (path.ends_with(".gz")) return path.substr(0, path.size() - 3);
  if (path.ends_with(".zst")) return path.substr(0, path.size() - 4);
  return path;
}

}  // namespace ddl
