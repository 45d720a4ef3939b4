// Plain text: one document per file, or split on a separator. Files of any size are read in pieces.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "core/error.h"
#include "core/index.h"
#include "data/document_source.h"
#include "data/jsonl_source.h"
#include "data/text_cut.h"

namespace ddl {
namespace {

class TextSource : public DocumentSource {
 public:
  TextSource(std::unique_ptr<ByteStream> stream, std::string first, const std::string& separator)
      : stream_(std::move(stream)),
        buffer_(std::move(first)),
        separator_(separator),
        taken_(buffer_.size()) {}

  bool next(Document& document) override {
    for (;;) {
      const std::string_view rest = std::string_view(buffer_).substr(begin_);
      if (!separator_.empty()) {
        const std::size_t found = rest.find(separator_, searched_);
        if (found != std::string_view::npos) {
          const bool empty_tail = piece_ > 0 && found == 0;
          emit(found, document);
          begin_ += separator_.size();
          searched_ = 0;
          piece_ = 0;
          if (empty_tail) continue;
          return true;
        }
      }
      // The last bytes may be the beginning of a separator.
      const std::size_t held = at_end_ || separator_.empty() ? 0 : separator_.size() - 1;
      searched_ = rest.size() - std::min(rest.size(), held);
      const std::size_t cut = piece_end(rest.substr(0, searched_));
      if (cut != std::string_view::npos) {
        emit(cut, document);
        searched_ -= cut;
        ++piece_;
        return true;
      }
      if (at_end_) {
        if (rest.empty()) return false;
        emit(rest.size(), document);
        searched_ = 0;
        return true;
      }
      read_more();
    }
  }
  std::uint64_t bytes_read() const override {
    return handed_out(stream_->file_offset(), taken_, buffer_.size() - begin_);
  }

 private:
  void emit(std::size_t bytes, Document& document) {
    document.text.assign(buffer_, begin_, bytes);
    document.piece = piece_;
    begin_ += bytes;
  }

  void read_more() {
    if (begin_ > 0) buffer_.erase(0, begin_), begin_ = 0;
    const std::size_t before = buffer_.size();
    buffer_.resize(before + kReadBytes);
    const std::size_t got = stream_->read(buffer_.data() + before, kReadBytes);
    buffer_.resize(before + got);
    taken_ += got;
    at_end_ = got == 0;
  }

  std::unique_ptr<ByteStream> stream_;
  std::string buffer_;
  std::string separator_;
  std::uint64_t taken_;       // bytes that came from the stream
  std::size_t begin_ = 0;     // of what is not handed out yet
  std::size_t searched_ = 0;  // bytes after begin_ known to hold no separator
  Index piece_ = 0;
  bool at_end_ = false;
};

}  // namespace

std::unique_ptr<DocumentSource> open_text_source(const std::string& path, const CorpusOptions& options) {
  return std::make_unique<TextSource>(std::make_unique<ByteStream>(path), "", options.separator);
}

std::unique_ptr<DocumentSource> open_stdin_source(const CorpusOptions& options, BadRows& bad) {
  auto stream = std::make_unique<ByteStream>(ByteStream::kStdin);
  constexpr std::size_t kFirstBytes = 4096;  // read at a time until something visible comes
  std::string first;
  while (is_blank(first)) {
    const std::size_t before = first.size();
    if (before > kReadBytes) break;
    first.resize(before + kFirstBytes);
    const std::size_t got = stream->read(first.data() + before, kFirstBytes);
    first.resize(before + got);
    if (got == 0) break;
  }
  const std::size_t visible = first.find_first_not_of(" \t\r\n");
  if (visible != std::string::npos && first[visible] == '{')
    return open_jsonl_stream(std::move(stream), std::move(first), options, bad);
  return std::make_unique<TextSource>(std::move(stream), std::move(first), options.separator);
}

}  // namespace ddl
