#include "data/jsonl_source.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/index.h"
#include "core/json.h"
#include "data/json_row.h"
#include "data/text_cut.h"

namespace ddl {
namespace {

// A longer line is a bad row: it is passed over without being kept, so that memory stays bounded.
constexpr std::size_t kMaxLineBytes = std::size_t{1} << 28;

// The spans of a generated corpus, [[begin, end], ...]. Other corpora use the name for other things: what has
// another shape is not ours, and is left alone.
std::optional<std::vector<ByteSpan>> parse_answers(std::string_view text) {
  const auto json = parse_json(text);
  if (!json.is_array()) return std::nullopt;
  std::vector<ByteSpan> spans;
  for (const auto& pair : json) {
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_number_integer() || !pair[1].is_number_integer())
      return std::nullopt;
    spans.push_back({pair[0].get<Index>(), pair[1].get<Index>()});
  }
  return spans;
}

class JsonlSource : public DocumentSource {
 public:
  JsonlSource(std::unique_ptr<ByteStream> stream, std::string first, const CorpusOptions& options,
              BadRows& bad)
      : stream_(std::move(stream)),
        buffer_(std::move(first)),
        field_(options.field),
        bad_(bad),
        taken_(buffer_.size()) {}

  bool next(Document& document) override {
    if (splitter_.next(document)) return true;
    std::string_view line;
    while (next_line(line)) {
      if (is_blank(line)) continue;
      try {
        parse_json_row(line, field_, row_);
        if (!row_.answers.empty()) set_answers(document);
      } catch (const UserError& error) {
        document.answers.clear();
        bad_.add(fmt::format("{}:{}: {}", stream_->name(), line_number_, error.what()));
        continue;
      }
      if (!document.answers.empty() || row_.text.empty()) {
        document.text.swap(row_.text);
        document.piece = 0;
        return true;
      }
      splitter_.start(std::move(row_.text));
      return splitter_.next(document);
    }
    return false;
  }
  std::uint64_t bytes_read() const override {
    return handed_out(stream_->file_offset(), taken_, buffer_.size() - begin_ + splitter_.bytes_left());
  }

 private:
  void set_answers(Document& document) {
    const auto spans = parse_answers(row_.answers);
    if (!spans) return;
    const Index bytes = std::ssize(row_.text);
    for (const ByteSpan& span : *spans)
      if (span.begin < 0 || span.begin >= span.end || span.end > bytes)
        throw UserError("answer [{}, {}] is not a range of the text's {} bytes", span.begin, span.end, bytes);
    document.answers = *spans;
  }

  // The next line without its line break; false at the end.
  bool next_line(std::string_view& line) {
    for (std::size_t searched = 0;;) {
      const std::size_t found = buffer_.find('\n', begin_ + searched);
      if (found != std::string::npos || (at_end_ && begin_ < buffer_.size())) {
        const std::size_t end = std::min(found, buffer_.size());
        line = std::string_view(buffer_).substr(begin_, end - begin_);
        begin_ = std::min(end + 1, buffer_.size());
        // Byte order mark
        if (++line_number_ == 1 && line.starts_with("\xef\xbb\xbf")) line.remove_prefix(3);
        if (!too_long_) return true;
        too_long_ = false;  // this was the end of it
        searched = 0;
        continue;
      }
      if (at_end_) return false;
      if (begin_ > 0) buffer_.erase(0, begin_), begin_ = 0;
      searched = buffer_.size();
      if (searched > kMaxLineBytes) {
        if (!too_long_)
          bad_.add(fmt::format("{}:{}: the line is longer than {} MB", stream_->name(), line_number_ + 1,
                               kMaxLineBytes >> 20));
        too_long_ = true;
        buffer_.clear();
        searched = 0;
      }
      buffer_.resize(buffer_.size() + kReadBytes);
      const std::size_t got = stream_->read(buffer_.data() + searched, kReadBytes);
      buffer_.resize(searched + got);
      taken_ += got;
      at_end_ = got == 0;
    }
  }

  std::unique_ptr<ByteStream> stream_;
  std::string buffer_;
  std::string field_;
  BadRows& bad_;
  JsonRow row_;
  PieceSplitter splitter_;
  std::uint64_t taken_;  // bytes that came from the stream
  std::size_t begin_ = 0;
  Index line_number_ = 0;
  bool at_end_ = false, too_long_ = false;
};

}  // namespace

bool PieceSplitter::next(Document& document) {
  const std::string_view rest = std::string_view(text_).substr(begin_);
  if (rest.empty()) return false;
  const std::size_t bytes = std::min(piece_end(rest), rest.size());
  document.text.assign(rest.substr(0, bytes));
  document.piece = piece_++;
  begin_ += bytes;
  return true;
}

std::unique_ptr<DocumentSource> open_jsonl_stream(std::unique_ptr<ByteStream> stream, std::string first,
                                                  const CorpusOptions& options, BadRows& bad) {
  return std::make_unique<JsonlSource>(std::move(stream), std::move(first), options, bad);
}

std::unique_ptr<DocumentSource> open_jsonl_source(const std::string& path, const CorpusOptions& options,
                                                  BadRows& bad) {
  return open_jsonl_stream(std::make_unique<ByteStream>(path), "", options, bad);
}

}  // namespace ddl
