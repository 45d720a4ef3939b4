// Byte-pair encoding of one word: of all neighbouring pairs that are in the table, the one of lowest rank is
// replaced by its result (the leftmost where several have that rank), until no pair is in the table.
#pragma once

#include <cstdint>
#include <vector>

#include "core/index.h"
#include "data/tokenizer.h"

namespace ddl {

struct Merge {
  TokenId left, right, result;
};

class MergeTable {
 public:
  MergeTable();

  // The next merge, of a higher rank than all before. False, without any change, if the pair is known.
  bool insert(const Merge& merge);
  Index size() const { return static_cast<Index>(count_); }

  // Encodes the word ids[from..] in place; the vector shrinks to what is left of it.
  void apply(std::vector<TokenId>& ids, std::size_t from) const;

 private:
  static constexpr std::uint32_t kNoRank = 0xffffffffu;
  static constexpr std::uint64_t kFree = ~std::uint64_t{0};
  struct Slot {
    std::uint64_t pair = kFree;
    std::uint32_t rank = kNoRank;
    TokenId result = 0;
  };
  const Slot& find(TokenId left, TokenId right) const;  // rank == kNoRank where the pair is not there
  std::size_t apply_short(TokenId* ids, std::size_t n) const;
  std::size_t apply_long(TokenId* ids, std::size_t n) const;
  void grow();

  std::vector<Slot> slots_;  // open addressing; a power of two, at most half full
  std::uint32_t count_ = 0;
};

}  // namespace ddl
