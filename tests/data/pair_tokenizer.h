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
    const auto letter = [&](std::size_t i) { return i < text.size() && text[i] >= 'a' && text[i] <= 'z'; };
    for (std::size_t i = 0; i < text.size();) {
      if (letter(i) && letter(i + 1)) {
        ids.push_back(static_cast<TokenId>(257 + (text[i] - 'a') * 26 + (text[i + 1] - 'a')));
        i += 2;
      } else {
        ids.push_back(static_cast<unsigned char>(text[i++]));
      }
    }
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
