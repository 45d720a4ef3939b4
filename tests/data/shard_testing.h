// Shards to test with.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/exec.h"
#include "data/shard.h"

namespace ddl {

inline const Exec kTwoThreads{.threads = 2};

inline std::vector<TokenId> ramp(Index count, TokenId modulus) {
  std::vector<TokenId> tokens;
  for (Index i = 0; i < count; ++i) tokens.push_back(static_cast<TokenId>(i * 7919 % modulus));
  return tokens;
}

inline void write_shard(const std::string& path, const std::vector<TokenId>& tokens, int token_bytes = 2) {
  ShardWriter writer(path, token_bytes);
  const std::size_t half = tokens.size() / 2;
  writer.write(std::span(tokens).first(half));
  writer.write(std::span(tokens).subspan(half));
  writer.finish();
}

}  // namespace ddl
