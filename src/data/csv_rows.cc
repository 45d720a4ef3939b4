#include "data/csv_rows.h"

#include <string_view>

#include "core/error.h"

namespace ddl {

bool CsvRows::fill() {
  constexpr std::size_t kAtATime = std::size_t{1} << 18;
  if (at_end_) return false;
  buffer_.resize(kAtATime);
  at_ = 0;
  buffer_.resize(read_(buffer_.data(), kAtATime));
  taken_ += buffer_.size();
  at_end_ = buffer_.empty();
  return !at_end_;
}

int CsvRows::peek() {
  if (at_ == buffer_.size() && !fill()) return -1;
  return static_cast<unsigned char>(buffer_[at_]);
}

int CsvRows::get() {
  const int c = peek();
  if (c < 0) return c;
  ++at_;
  line_ += c == '\n';
  return c;
}

void CsvRows::skip_line() {
  for (int c = get(); c >= 0 && c != '\n';) c = get();
}

bool CsvRows::next(std::vector<std::string>& fields) {
  std::string field;
  if (!begun_) {
    begun_ = true;
    const std::string_view mark = "\xef\xbb\xbf";  // of the byte order, or the beginning of another character
    while (field.size() < mark.size() && peek() == static_cast<unsigned char>(mark[field.size()]))
      field += static_cast<char>(get());
    if (field == mark) field.clear();
  }
  while (field.empty() && (peek() == '\n' || peek() == '\r')) get();
  fields.clear();
  if (field.empty() && peek() < 0) return false;
  row_line_ = line_;
  std::size_t bytes = field.size();
  bool quoted = false;  // the field began with a quote that is not closed yet
  bool closed = false;  // ... and that is
  const auto too_long = [&] {
    skip_line();
    throw BadCsvRow("the row is longer than {} MB; is a quote missing?", kMaxCsvRowBytes >> 20);
  };
  for (;;) {
    const int c = get();
    if (++bytes > kMaxCsvRowBytes) too_long();
    if (quoted) {
      if (c < 0) throw BadCsvRow("a field in quotes does not end");
      if (c != '"')
        field += static_cast<char>(c);
      else if (peek() == '"')
        field += static_cast<char>(get());
      else
        quoted = false, closed = true;
    } else if (c < 0 || c == '\n' || (c == '\r' && (peek() == '\n' || peek() < 0))) {
      if (c == '\r') get();
      fields.push_back(std::move(field));
      return true;
    } else if (c == delimiter_) {
      fields.push_back(std::move(field));
      field.clear();
      closed = false;
    } else if (closed) {
      skip_line();
      throw BadCsvRow("field {}: expected the delimiter or the end of the row behind a closing quote",
                      fields.size() + 1);
    } else if (c == '"' && field.empty()) {
      quoted = true;
    } else {
      field += static_cast<char>(c);
    }
  }
}

}  // namespace ddl
