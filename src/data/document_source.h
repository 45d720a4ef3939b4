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
  virtual std::uint64_t bytes_read() const = 0;
};

// Looks at the first byte that is not white space to tell JSON Lines from text.
std::unique_ptr<DocumentSource> open_stdin_source(const CorpusOptions& options, BadRows& bad);
std::unique_ptr<DocumentSource> open_text_source(const std::string& path, const CorpusOptions& options);
std::unique_ptr<DocumentSource> open_jsonl_source(const std::string& path, const CorpusOptions& options,
                                                  BadRows& bad);
// Throws UserError, saying how to get it, where the program was built without Apache Arrow.
std::unique_ptr<DocumentSource> open_parquet_source(const std::string& path, const CorpusOptions& options,
                                                    BadRows& bad);
bool parquet_is_built_in();

// The pieces of a text held in memory, one at a time.
class PieceSplitter {
 public:
  void start(std::string text) { text_ = std::move(text), begin_ = 0, piece_ = 0; }
  bool next(Document& document);

 private:
  std::string text_;
  std::size_t begin_ = 0;
  Index piece_ = 0;
};

}  // namespace ddl
