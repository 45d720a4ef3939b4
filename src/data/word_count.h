// How often each word (data/pretokenize.h) occurs in a stream of documents: all that training a tokenizer
// needs to know. Memory follows the number of different words, not the length of the text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/exec.h"
#include "data/byte_map.h"

namespace ddl {

class WordCounter {
 public:
  explicit WordCounter(const Exec& ex) : exec_(ex) {}

  // Documents are any bytes; words do not reach across their ends.
  void add(std::string_view document);

  // All words with their counts, sorted by their bytes: the same for any number of threads. The views stay
  // valid until more is added.
  std::vector<std::pair<std::string_view, std::uint64_t>> words();

  std::uint64_t documents() const { return documents_; }
  std::uint64_t bytes() const { return bytes_; }

 private:
  struct Piece {  // parts of documents end to end, counted by one thread
    std::string text;
    std::vector<std::size_t> ends;
  };
  void flush();

  Exec exec_;
  ByteMap<std::uint64_t> counts_;
  std::vector<Piece> pieces_;
  std::size_t waiting_bytes_ = 0;
  std::uint64_t documents_ = 0, bytes_ = 0;
};

}  // namespace ddl
