// Shuffles documents that do not fit in memory. Each has a random key; the shuffled order is the order of the
// keys. Documents go to one of many files by the first bits of their key; later the files are taken in order
// and each is sorted by itself. The result depends on the keys alone, not on how many files there are.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/function_ref.h"
#include "core/index.h"
#include "data/tokenizer.h"
#include "io/file.h"

namespace ddl {

// A document as it was added, in one or more pieces.
class ShuffledDocument {
 public:
  struct Piece {
    std::uint64_t key, index;
    std::uint32_t piece, has_answers;
    std::uint64_t tokens;
    std::uint64_t offset;  // of the tokens in the file
  };
  ShuffledDocument(const MappedFile& file, std::span<const Piece> pieces, int token_bytes)
      : file_(file), pieces_(pieces), token_bytes_(token_bytes) {}

  Index tokens() const;
  Index pieces() const { return std::ssize(pieces_); }
  void read(Index piece, std::vector<TokenId>& tokens, std::vector<std::uint8_t>& answers) const;

 private:
  const MappedFile& file_;
  std::span<const Piece> pieces_;
  int token_bytes_;
  mutable std::uint64_t touched_bytes_ = 0;  // of the mapped file, since its pages were given back
};

class DocumentShuffler {
 public:
  // Works in `folder`, which it creates and, in the end, removes.
  DocumentShuffler(std::string folder, int token_bytes, std::uint64_t seed);
  ~DocumentShuffler();
  DocumentShuffler(const DocumentShuffler&) = delete;
  DocumentShuffler& operator=(const DocumentShuffler&) = delete;

  // `answers` is empty or has a byte for each token.
  void add(Index document, Index piece, std::span<const TokenId> tokens,
           std::span<const std::uint8_t> answers);
  Index tokens() const { return tokens_; }
  bool has_answers() const { return has_answers_; }

  // Once, after the last add.
  void for_each(FunctionRef<void(const ShuffledDocument&)> visit);

 private:
  static constexpr int kBucketBits = 8;
  std::string bucket_path(std::size_t bucket) const;
  std::string folder_;
  int token_bytes_;
  std::uint64_t seed_;
  std::vector<std::unique_ptr<FileWriter>> buckets_;
  Index tokens_ = 0;
  bool has_answers_ = false;
};

}  // namespace ddl
