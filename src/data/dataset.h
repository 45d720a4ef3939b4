// A dataset: a folder of token shards in any of the forms people have.
//   prepared by `ddl data prepare`     dataset.json, NAME_train_000001.bin ..., NAME_val_..., tokenizer.json
//   llm.c, modded-nanoGPT              *_train_*.bin, *_val_*.bin
//   nanoGPT                            train.bin, val.bin (no header)
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/exec.h"
#include "core/index.h"
#include "core/record.h"
#include "data/shard.h"
#include "data/tokenizer.h"

namespace ddl {

// The shards of a split, end to end as one sequence of tokens.
class TokenStream {
 public:
  TokenStream() = default;
  explicit TokenStream(std::vector<TokenShard> shards);

  Index tokens() const { return starts_.back(); }
  bool has_answers() const { return has_answers_; }
  void read(Index begin, Index count, TokenId* out) const;
  void read_answers(Index begin, Index count, std::uint8_t* out) const;
  const std::vector<TokenShard>& shards() const { return shards_; }
  std::vector<TokenShard>& shards() { return shards_; }

 private:
  // Calls piece(shard, begin in it, count, offset of the piece) for each shard the range touches.
  template <class F>
  void for_each_piece(Index begin, Index count, F&& piece) const;
  std::vector<TokenShard> shards_;
  std::vector<Index> starts_{0};  // of each shard, and the end
  bool has_answers_ = false;
};

// The token shards of a folder, by their names: *_train_*.bin and *_val_*.bin (llm.c's form); where there are none of
// these, train.bin and val.bin, which may be without a header (nanoGPT's).
struct ShardFiles {
  std::vector<std::string> train, val;
  bool bare = false;  // nanoGPT's names

  std::vector<TokenShard> open(const std::vector<std::string>& paths) const;
};
ShardFiles find_shard_files(const std::string& folder);

class Dataset {
 public:
  // Reads everything once: checks sizes against headers, and tokens against the vocabulary where the
  // folder says what it is. Throws UserError naming the file and what is wrong.
  static Dataset open(const std::string& folder, const Exec& ex);

  const std::string& folder() const { return folder_; }
  const std::string& form() const { return form_; }  // "ddl" | "llm.c" | "nanogpt"
  const TokenStream& train() const { return train_; }
  const TokenStream& val() const { return val_; }  // no tokens where there is no validation split
  bool has_answers() const { return train_.has_answers() || val_.has_answers(); }

  Index vocab_size() const { return vocab_size_; }                       // 0 where the folder does not say
  std::optional<TokenId> end_of_text() const { return end_of_text_; }    // begins each document
  const std::string& tokenizer_path() const { return tokenizer_path_; }  // "" where there is none
  const Json& manifest() const { return manifest_; }                     // dataset.json; null where none

  // Throws UserError naming file, position and token where one does not fit.
  void check_vocab(Index vocab_size, const Exec& ex) const;

  // Changes when the data does: every token and answer of each shard counts. Names and paths do not, so the same
  // data made in another folder, or on another machine, has the same fingerprint. It is taken while opening reads
  // all tokens anyway, so that every resume can compare it.
  const std::string& fingerprint() const { return fingerprint_; }
  // Hashes every shard and compares with the manifest; throws UserError naming the first that differs.
  void verify_hashes(const Exec& ex) const;

 private:
  void open_prepared(const std::string& text);
  void open_shards();
  void read_all(const Exec& ex);
  std::string folder_, form_, tokenizer_path_, fingerprint_;
  std::vector<TokenId> largest_;  // token of each shard, of training and then of validation
  TokenStream train_, val_;
  Index vocab_size_ = 0;
  std::optional<TokenId> end_of_text_;
  Json manifest_;
};

// The first entry of a prepared dataset's folder that its dataset.json does not account for; "" where there
// is none. Throws UserError where dataset.json is damaged.
std::string first_foreign_entry(const std::string& folder);

}  // namespace ddl
