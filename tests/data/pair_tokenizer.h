// A tokenizer small enough to check by eye: bytes, end of text, and a token for each pair of lower-case
// letters, taken greedily from the left of each run of letters.
#pragma once

#include <string>

#include "data/tokenizer.h"
#include "io/file.h"

namespace ddl {

class PairTokenizer : public Tokenizer {
 public:
  static constexpr TokenId kEndOfText = 256;

  void encode(std::string_view text, std::vector<TokenId>& ids) const override {
    // Plain pointers: tests are compiled without optimisation, and some encode many megabytes.
    const char *at = text.data(), *end = at + text.size();
    const std::size_t before = ids.size();
    ids.resize(before + text.size());
    TokenId* out = ids.data() + before;
    while (at < end) {
      const bool pair = end - at > 1 && at[0] >= 'a' && at[0] <= 'z' && at[1] >= 'a' && at[1] <= 'z';
      *out++ = pair ? static_cast<TokenId>(257 + (at[0] - 'a') * 26 + (at[1] - 'a'))
                    : static_cast<unsigned char>(at[0]);
      at += pair ? 2 : 1;
    }
    ids.resize(static_cast<std::size_t>(out - ids.data()));
  }
  std::string decode(std::span<const TokenId> ids) const override {
    std::string text;
    for (const TokenId id : ids) {
      if (id < 256) text += static_cast<char>(id);
      if (id > 256 && id < 257 + 676) {
        text += static_cast<char>('a' + (id - 257) / 26);
        text += static_cast<char>('a' + (id - 257) % 26);
      }
    }
    return text;
  }
  Index vocab_size() const override { return vocab_size_; }
  TokenId end_of_text() const override { return kEndOfText; }
  std::string name() const override { return "letter pairs"; }
  void save(const std::string& folder) const override { write_file_atomic(folder + "/tokenizer.json", "{}"); }

  Index vocab_size_ = 257 + 676;
};

}  // namespace ddl
