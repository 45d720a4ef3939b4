// Documents of text files, JSON Lines, CSV, TSV and Parquet, compressed or not, one after another in bounded memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/index.h"

namespace ddl {

struct ByteSpan {
  Index begin = 0, end = 0;
};

// A document, or a piece of a long one: documents above half a MB come as several (text_cut.h says where they
// are cut), so that one of any size passes through bounded memory.
struct Document {
  std::string text;               // any bytes
  std::vector<ByteSpan> answers;  // bytes of `text` that answer a question; such documents come whole
  Index index = 0;                // of the document, in the order of the inputs
  Index piece = 0;                // 0 begins the document
};

struct CorpusOptions {
  std::string field = "text";  // of JSON Lines, CSV, TSV and Parquet
  std::string separator;       // splits text files into documents; "": one document a file
  // auto (by name; standard input by its first byte) | text | jsonl | csv | tsv | parquet
  std::string format = "auto";
  Index skip_bad = 0;  // rows that may be bad before it is an error
};

// Bad rows: tolerated up to a limit, the first few kept to be shown.
class BadRows {
 public:
  static constexpr std::size_t kShown = 10;
  explicit BadRows(Index allowed) : allowed_(allowed) {}
  void add(const std::string& message);  // throws UserError above the limit
  Index count() const { return count_; }
  const std::vector<std::string>& first() const { return first_; }

 private:
  Index allowed_, count_ = 0;
  std::vector<std::string> first_;
};

struct InputFile {
  std::string path;         // or "-"
  std::string format;       // text | jsonl | csv | tsv | parquet; auto for standard input
  std::uint64_t bytes = 0;  // 0 where unknown
};

// Files, folders (searched through in sorted order for files of known names; hidden ones left out) and "-".
// A file named directly whose name says nothing is plain text. Throws UserError where there is nothing.
std::vector<InputFile> find_inputs(const std::vector<std::string>& inputs, const CorpusOptions& options);

class DocumentSource;

class CorpusReader {
 public:
  CorpusReader(const std::vector<std::string>& inputs, CorpusOptions options);
  ~CorpusReader();

  bool next(Document& document);  // false at the end; throws UserError naming file and line or offset

  const std::vector<InputFile>& inputs() const { return inputs_; }
  const BadRows& bad_rows() const { return bad_rows_; }
  Index documents() const { return documents_; }  // begun so far
  Index blank() const { return blank_; }          // left out: nothing but white space
  std::uint64_t bytes_read() const;  // of the files, before decompression, behind the last document or piece
  std::uint64_t bytes_total() const { return bytes_total_; }  // 0 where unknown

 private:
  CorpusOptions options_;
  std::vector<InputFile> inputs_;
  BadRows bad_rows_;
  std::unique_ptr<DocumentSource> source_;  // of the input being read
  std::size_t next_input_ = 0;
  std::uint64_t bytes_before_ = 0, bytes_total_ = 0;  // bytes_before_: of the inputs already read
  Index documents_ = 0, blank_ = 0;
};

}  // namespace ddl
