// Reads one input of a corpus. A source sets text, answers and piece of a document; the reader numbers it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/index.h"
#include "data/corpus.h"
#include "io/byte_stream.h"

namespace ddl {

class DocumentSource {
 public:
  virtual ~DocumentSource() = default;
  virtual bool next(Document& document) = 0;
  // Of the file, as far as documents and pieces have been handed out: what is read ahead does not count.
  virtual std::uint64_t bytes_read() const = 0;
};

// Looks at the first byte that is not white space to tell JSON Lines from text.
std::unique_ptr<DocumentSource> open_stdin_source(const CorpusOptions& options, BadRows& bad);
std::unique_ptr<DocumentSource> open_text_source(const std::string& path, const CorpusOptions& options);
std::unique_ptr<DocumentSource> open_jsonl_source(const std::string& path, const CorpusOptions& options,
                                                  BadRows& bad);
std::unique_ptr<DocumentSource> open_csv_source(const std::string& path, char delimiter,
                                                const CorpusOptions& options, BadRows& bad);
// Throws UserError, saying how to get it, where the program was built without Apache Arrow.
std::unique_ptr<DocumentSource> open_parquet_source(const std::string& path, const CorpusOptions& options,
                                                    BadRows& bad);
bool parquet_is_built_in();

// Of `file_bytes` read, which gave `taken` bytes of text, those handed out while `waiting` of them are not.
inline std::uint64_t handed_out(std::uint64_t file_bytes, std::uint64_t taken, std::uint64_t waiting) {
  if (waiting == 0) return file_bytes;
  if (waiting >= taken) return 0;
  return static_cast<std::uint64_t>(static_cast<double>(file_bytes) * static_cast<double>(taken - waiting) /
                                    static_cast<double>(taken));
}

// The pieces of a text held in memory, one at a time.
class PieceSplitter {
 public:
  void start(std::string text) { text_ = std::move(text), begin_ = 0, piece_ = 0; }
  bool next(Document& document);
  std::size_t bytes_left() const { return text_.size() - begin_; }

 private:
  std::string text_;
  std::size_t begin_ = 0;
  Index piece_ = 0;
};

}  // namespace ddl
