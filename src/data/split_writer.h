// Writes one split of a dataset as numbered shards: NAME_train_000001.bin, NAME_train_000002.bin, ...
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/exec.h"
#include "core/index.h"
#include "core/record.h"
#include "data/shard.h"
#include "data/tokenizer.h"
#include "io/file.h"

namespace ddl {

class SplitWriter {
 public:
  SplitWriter(std::string folder, const std::string& name, const std::string& split, int token_bytes,
              Index shard_tokens, bool with_answers);

  // `answers` has a byte for each token; it is written where the split has answers.
  void write(std::span<const TokenId> tokens, std::span<const std::uint8_t> answers);
  void count_document() { ++documents_; }
  void finish();

  Index tokens() const { return tokens_; }
  // {"tokens", "documents", "shards": [{"file", "tokens", "sha256", "answers": {"file", "sha256"}}]}; hashes
  // are taken from the finished files.
  Json manifest(const Exec& ex) const;

 private:
  void close_shard();
  std::string folder_, prefix_;
  int token_bytes_;
  Index shard_tokens_;
  bool with_answers_;
  Index tokens_ = 0, documents_ = 0;
  std::unique_ptr<ShardWriter> shard_;
  std::unique_ptr<FileWriter> answers_;
  std::vector<std::string> names_;
  std::vector<Index> counts_;
};

}  // namespace ddl
