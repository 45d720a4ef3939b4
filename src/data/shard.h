// Token shards in the format llm.c made common, and the headerless one of nanoGPT.
//
//   header       256 int32, little-endian: magic 20240520, version, token count, then zeros
//   version 1    uint16 tokens
//   version 2    uint32 tokens, for vocabularies above 65536
//
// Also read: llm.c's Llama-3 shards (magic 20240801, version 7, uint32) and bare uint16 files.
// A shard FILE.bin may have a second file FILE.answers with one byte per token: 0 ordinary text, 1 the first
// token of an answer, 2 a further token of the same answer.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/exec.h"
#include "core/index.h"
#include "data/tokenizer.h"
#include "io/file.h"

namespace ddl {

inline constexpr Index kShardHeaderBytes = 1024;
inline constexpr Index kMaxShardTokens = (Index{1} << 31) - 1;  // the header counts in int32

constexpr int token_bytes_for(Index vocab_size) { return vocab_size <= 65536 ? 2 : 4; }

class ShardWriter {
 public:
  ShardWriter(const std::string& path, int token_bytes);
  void write(std::span<const TokenId> tokens);
  Index tokens() const { return tokens_; }
  void finish();  // the count into the header, everything onto the disk; until then the shard is not valid

 private:
  FileWriter file_;
  int token_bytes_;
  Index tokens_ = 0;
  std::vector<std::uint16_t> narrow_;
};

enum class BareFiles { kRefuse, kAccept };  // files without a header

class TokenShard {
 public:
  // Opens the file and its file of answers, if any; throws UserError where sizes disagree. So does every later
  // reading where another process has changed one of them since.
  explicit TokenShard(const std::string& path, BareFiles bare = BareFiles::kRefuse);

  const std::string& path() const { return path_; }
  Index tokens() const { return tokens_; }
  int token_bytes() const { return token_bytes_; }
  bool has_answers() const { return answers_.size() > 0; }

  void read(Index begin, Index count, TokenId* out) const;
  void read_answers(Index begin, Index count, std::uint8_t* out) const;  // zeros where there is no sidecar

  // Of every byte behind the header, in one pass.
  struct Contents {
    TokenId largest = 0;                   // 0 where there is no token
    std::vector<std::uint64_t> checksums;  // of tokens and answers; the number of threads changes nothing
  };
  Contents read_all(const Exec& ex) const;
  // From now on a token above this one means that the file has changed.
  void expect_at_most(TokenId largest) { largest_ = largest; }

  struct Bad {
    Index position;
    TokenId token;
  };
  // The first token that is not below vocab_size.
  std::optional<Bad> find_out_of_range(Index vocab_size, const Exec& ex) const;

 private:
  void read_raw(Index begin, Index count, TokenId* out) const;
  std::string path_;
  SteadyFile file_, answers_;
  TokenId largest_ = std::numeric_limits<TokenId>::max();
  int token_bytes_ = 2;
  Index header_bytes_ = 0;
  Index tokens_ = 0;
};

// "x.bin" -> "x.answers"
std::string answers_path(const std::string& shard_path);

}  // namespace ddl
