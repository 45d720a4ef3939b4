#include "data/split_writer.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/error.h"
#include "core/exec.h"
#include "core/index.h"
#include "data/tokenizer.h"
#include "io/file.h"
#include "io/sha256.h"

namespace ddl {

SplitWriter::SplitWriter(std::string folder, const std::string& name, const std::string& split,
                         int token_bytes, Index shard_tokens, bool with_answers)
    : folder_(std::move(folder)),
      prefix_(name + "_" + split + "_"),
      token_bytes_(token_bytes),
      shard_tokens_(shard_tokens),
      with_answers_(with_answers) {}

void SplitWriter::write(std::span<const TokenId> tokens, std::span<const std::uint8_t> answers) {
  DDL_CHECK(tokens.size() == answers.size(), "{} tokens, {} answers", tokens.size(), answers.size());
  while (!tokens.empty()) {
    if (!shard_) {
      names_.push_back(fmt::format("{}{:06}.bin", prefix_, names_.size() + 1));
      const std::string path = folder_ + "/" + names_.back();
      shard_ = std::make_unique<ShardWriter>(path, token_bytes_);
      if (with_answers_) answers_ = std::make_unique<FileWriter>(answers_path(path));
    }
    const auto room = static_cast<std::size_t>(shard_tokens_ - shard_->tokens());
    const std::size_t take = std::min(room, tokens.size());
    shard_->write(tokens.first(take));
    if (answers_) answers_->write(answers.data(), take);
    tokens_ += static_cast<Index>(take);
    tokens = tokens.subspan(take);
    answers = answers.subspan(take);
    if (shard_->tokens() == shard_tokens_) close_shard();
  }
}

void SplitWriter::close_shard() {
  shard_->finish();
  counts_.push_back(shard_->tokens());
  shard_.reset();
  if (answers_) answers_->sync();
  answers_.reset();
}

void SplitWriter::finish() {
  if (shard_) close_shard();
}

Json SplitWriter::manifest(const Exec& ex) const {
  std::vector<Json> shards(names_.size());
  parallel_for(std::ssize(names_), ex, [&](Index i) {
    const std::string path = folder_ + "/" + names_[i];
    shards[i] = Json{{"file", names_[i]}, {"tokens", counts_[i]}, {"sha256", sha256_file(path)}};
    if (with_answers_)
      shards[i]["answers"] =
          Json{{"file", answers_path(names_[i])}, {"sha256", sha256_file(answers_path(path))}};
  });
  return Json{{"tokens", tokens_}, {"documents", documents_}, {"shards", shards}};
}

}  // namespace ddl
