// Byte-level BPE with the pre-tokenisation of GPT-2 or of another family (pretokenize.h). Every file format
// boils down to a BpeVocabulary; raw bytes are one without merges.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/index.h"
#include "data/bpe_merge.h"
#include "data/byte_map.h"
#include "data/pretokenize.h"
#include "data/tokenizer.h"

namespace ddl {

inline constexpr std::string_view kEndOfText = "<|endoftext|>";

struct BpeVocabulary {
  std::vector<std::string> tokens;         // id -> the bytes it decodes to; "" where the id is not used
  std::vector<Merge> merges;               // in order of rank
  std::vector<TokenId> specials;           // never produced from text, whatever the text says
  TokenId end_of_text = 0;                 // one of the specials
  WordPattern words = WordPattern::kGpt2;  // how text is cut before merging
  bool nfc = false;                        // text is brought into Unicode's form C first (nfc.h)
  std::vector<TokenId>
      normalized;  // with nfc, sorted: the specials that are looked for afterwards, not before
  bool whole_words_first = false;  // a word that is a token becomes it, even where merges do not lead to it
};

// 256 byte values, each its own id, and end of text.
inline constexpr TokenId kByteVocabularyEnd = 256;  // the id of end of text there
BpeVocabulary byte_vocabulary();

std::string word_pattern_name(WordPattern pattern);  // "gpt2", "llama3", ...

std::string tokenizer_json(const BpeVocabulary& vocabulary);  // the text of a tokenizer.json (bpe_parse.h)

// Throws UserError, which begins with `where`, unless every byte has a token of its own: without that some
// text could not be encoded.
void check_all_bytes(const BpeVocabulary& vocabulary, const std::string& where);

class BpeTokenizer final : public Tokenizer {
 public:
  // The vocabulary must have passed check_all_bytes.
  explicit BpeTokenizer(BpeVocabulary vocabulary);

  void encode(std::string_view text, std::vector<TokenId>& ids) const override;
  std::string decode(std::span<const TokenId> ids) const override;
  std::string_view normalized(std::string_view text, std::string& buffer) const override;
  Index vocab_size() const override { return static_cast<Index>(vocabulary_.tokens.size()); }
  TokenId end_of_text() const override { return vocabulary_.end_of_text; }
  std::string name() const override;
  void save(const std::string& folder) const override;

  const BpeVocabulary& vocabulary() const { return vocabulary_; }

 private:
  void encode_word(std::string_view word, std::vector<TokenId>& ids) const;

  BpeVocabulary vocabulary_;
  std::array<TokenId, 256> byte_ids_{};
  MergeTable merges_;
  // Words that are exactly one token: most of ordinary text, answered by one lookup. It is complete at load
  // time and only read afterwards, so threads share it without locks.
  ByteMap<TokenId> whole_words_;
  std::size_t longest_whole_word_ = 0;
};

// As Tokenizer::encode, but "<|endoftext|>" (or whatever the tokenizer's end of text is spelled like) in the
// text becomes that id. For text that the caller wrote, never for text from elsewhere.
void encode_with_end_of_text(const Tokenizer& tokenizer, std::string_view text, std::vector<TokenId>& ids);

}  // namespace ddl
