#include "data/bpe.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>

#include "core/error.h"
#include "data/nfc.h"

namespace ddl {
namespace {

std::vector<bool> special_flags(const BpeVocabulary& vocabulary) {
  std::vector<bool> flags(vocabulary.tokens.size());
  for (const TokenId id : vocabulary.specials) flags[id] = true;
  return flags;
}

}  // namespace

BpeVocabulary byte_vocabulary() {
  BpeVocabulary bytes;
  for (int b = 0; b < 256; ++b) bytes.tokens.emplace_back(1, static_cast<char>(b));
  bytes.tokens.emplace_back(kEndOfText);
  bytes.specials = {kByteVocabularyEnd};
  bytes.end_of_text = kByteVocabularyEnd;
  return bytes;
}

std::string word_pattern_name(WordPattern pattern) {
  switch (pattern) {
    case WordPattern::kGpt2:
      return "gpt2";
    case WordPattern::kSmolLm:
      return "smollm";
    case WordPattern::kLlama3:
      return "llama3";
    case WordPattern::kQwen2:
      return "qwen2";
  }
  return "";
}

void check_all_bytes(const BpeVocabulary& vocabulary, const std::string& where) {
  const std::vector<bool> special = special_flags(vocabulary);
  std::array<bool, 256> have{};
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id)
    if (!special[id] && vocabulary.tokens[id].size() == 1)
      have[static_cast<unsigned char>(vocabulary.tokens[id][0])] = true;
  const auto missing = std::find(have.begin(), have.end(), false);
  if (missing != have.end())
    throw UserError(
        "{}: expected a byte-level vocabulary with a token for each of the 256 bytes, found none for byte "
        "{:#04x} "
        "({} of 256 are there); text with that byte could not be encoded",
        where, missing - have.begin(), std::count(have.begin(), have.end(), true));
}

BpeTokenizer::BpeTokenizer(BpeVocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {
  const std::vector<bool> special = special_flags(vocabulary_);
  const auto count = static_cast<TokenId>(vocabulary_.tokens.size());
  for (TokenId id = count; id-- > 0;)  // the smallest id wins, should two tokens be the same byte
    if (!special[id] && vocabulary_.tokens[id].size() == 1)
      byte_ids_[static_cast<unsigned char>(vocabulary_.tokens[id][0])] = id;
  for (const Merge& merge : vocabulary_.merges) merges_.insert(merge);

  std::vector<TokenId> ids;
  for (TokenId id = 0; id < count; ++id) {
    const std::string& token = vocabulary_.tokens[id];
    if (special[id] || token.empty()) continue;
    ids.clear();
    for (const char c : token) ids.push_back(byte_ids_[static_cast<unsigned char>(c)]);
    merges_.apply(ids, 0);
    if (vocabulary_.whole_words_first || (ids.size() == 1 && ids[0] == id)) {
      whole_words_[token] = id;
      longest_whole_word_ = std::max(longest_whole_word_, token.size());
    }
  }
}

void BpeTokenizer::encode_word(std::string_view word, std::vector<TokenId>& ids) const {
  if (word.size() <= longest_whole_word_) {
    if (const TokenId* id = whole_words_.find(word)) {
      ids.push_back(*id);
      return;
    }
  }
  const std::size_t from = ids.size();
  for (const char c : word) ids.push_back(byte_ids_[static_cast<unsigned char>(c)]);
  merges_.apply(ids, from);
}

void BpeTokenizer::encode(std::string_view text, std::vector<TokenId>& ids) const {
  std::string buffer;
  text = normalized(text, buffer);
  if (whole_words_.size() == 256 && longest_whole_word_ == 1) {  // raw bytes
    for (const char c : text) ids.push_back(byte_ids_[static_cast<unsigned char>(c)]);
    return;
  }
  for_each_pretoken(text, vocabulary_.words, [&](std::string_view word) { encode_word(word, ids); });
}

std::string_view BpeTokenizer::normalized(std::string_view text, std::string& buffer) const {
  return vocabulary_.nfc ? to_nfc(text, buffer) : text;
}

std::string BpeTokenizer::decode(std::span<const TokenId> ids) const {
  std::string text;
  for (const TokenId id : ids)
    if (id < vocabulary_.tokens.size()) text += vocabulary_.tokens[id];
  return text;
}

std::string BpeTokenizer::name() const {
  const char* const form = vocabulary_.nfc ? ", NFC" : "";
  if (vocabulary_.merges.empty() && vocab_size() == Index{kByteVocabularyEnd} + 1)
    return fmt::format("bytes{}", form);
  return fmt::format("{}-style bpe, {} tokens{}", word_pattern_name(vocabulary_.words), vocab_size(), form);
}

void encode_with_end_of_text(const Tokenizer& tokenizer, std::string_view text, std::vector<TokenId>& ids) {
  const TokenId end_id = tokenizer.end_of_text();
  std::string end_text = tokenizer.decode({&end_id, 1}), buffer, end_buffer;
  if (const auto* bpe = dynamic_cast<const BpeTokenizer*>(&tokenizer)) {
    const std::vector<TokenId>& normalized = bpe->vocabulary().normalized;
    if (std::binary_search(normalized.begin(), normalized.end(), end_id)) {
      text = bpe->normalized(text, buffer);
      end_text = std::string(bpe->normalized(end_text, end_buffer));
    }
  }
  for (std::size_t at = 0;;) {
    const std::size_t found = end_text.empty() ? text.npos : text.find(end_text, at);
    tokenizer.encode(text.substr(at, found - at), ids);
    if (found == text.npos) return;
    ids.push_back(end_id);
    at = found + end_text.size();
  }
}

}  // namespace ddl
