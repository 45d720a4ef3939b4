// Rows of a CSV or TSV file as RFC 4180 has them, in bounded memory: a field may stand in quotes, inside
// which delimiters and line breaks are text and "" is a quote. Bytes need not be UTF-8. Lines may end in \n
// or \r\n; empty lines are no rows.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/index.h"

namespace ddl {

// A row that is wrong, without file and line. What the file itself does (damaged compression) is another UserError.
struct BadCsvRow : UserError {
  using UserError::UserError;
};

inline constexpr std::size_t kMaxCsvRowBytes = std::size_t{1} << 28;

class CsvRows {
 public:
  using Read = std::function<std::size_t(char* out, std::size_t bytes)>;  // 0 at the end only
  CsvRows(Read read, char delimiter) : read_(std::move(read)), delimiter_(delimiter) {}

  // The next row's fields; false at the end. Throws BadCsvRow for a row that is wrong: a quoted field
  // with something behind its quote, one that never ends, a row that is too long. The next call continues after it.
  bool next(std::vector<std::string>& fields);

  Index line() const { return row_line_; }  // where the last row begins, counted from 1
  std::size_t bytes_waiting() const { return buffer_.size() - at_; }  // read and not looked at
  std::size_t bytes_taken() const { return taken_; }

 private:
  int get();  // the next byte, -1 at the end
  int peek();
  bool fill();
  void skip_line();

  Read read_;
  const char delimiter_;
  std::string buffer_;
  std::size_t at_ = 0, taken_ = 0;
  Index line_ = 1, row_line_ = 0;
  bool at_end_ = false, begun_ = false;
};

}  // namespace ddl
