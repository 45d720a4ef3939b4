// .tiktoken files list tokens by rank but not the merges. A token's merge is what is left of its bytes after
// all merges of lower rank: exactly two parts for a vocabulary that byte-pair training made. Tokens that were
// added by hand (p50k_base's runs of spaces) may leave more; any two tokens of lower rank that join to it
// then make it.
#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/index.h"
#include "data/bpe_parse.h"
#include "data/tokenizer.h"

namespace ddl {
namespace {

constexpr std::array<std::int8_t, 256> make_base64_digits() {
  std::array<std::int8_t, 256> digits{};
  for (auto& digit : digits) digit = -1;
  constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (std::size_t i = 0; i < kAlphabet.size(); ++i)
    digits[static_cast<unsigned char>(kAlphabet[i])] = static_cast<std::int8_t>(i);
  return digits;
}
constexpr std::array<std::int8_t, 256> kBase64Digits = make_base64_digits();

std::optional<std::string> from_base64(std::string_view text) {
  if (text.empty() || text.size() % 4 != 0) return std::nullopt;
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  std::string bytes;
  std::uint32_t group = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const int digit = kBase64Digits[static_cast<unsigned char>(text[i])];
    if (digit < 0 && i < text.size() - padding) return std::nullopt;
    group = group << 6 | static_cast<std::uint32_t>(std::max(digit, 0));
    if (i % 4 != 3) continue;
    for (int shift = 16; shift >= 0; shift -= 8) bytes += static_cast<char>(group >> shift);
    group = 0;
  }
  bytes.erase(bytes.size() - padding);
  return bytes;
}

// "<base64> <rank>" into tokens[rank].
void read_line(std::string_view line, const std::string& at, std::vector<std::string>& tokens) {
  const std::size_t space = std::min(line.find(' '), line.size());
  const std::optional<std::string> bytes = from_base64(line.substr(0, space));
  const std::string_view number = line.substr(std::min(space + 1, line.size()));
  std::uint64_t rank = 0;
  const auto [stop, error] = std::from_chars(number.data(), number.data() + number.size(), rank);
  if (!bytes || error != std::errc() || stop != number.data() + number.size() || rank >= kMaxIds)
    throw UserError("{}: expected a token in base64, a space, and a rank below {}, found '{}'", at, kMaxIds,
                    line.substr(0, 80));
  if (rank >= tokens.size()) tokens.resize(rank + 1);
  if (!tokens[rank].empty()) throw UserError("{}: expected each rank once, found {} again", at, rank);
  tokens[rank] = *bytes;
}

void derive_merges(BpeVocabulary& vocabulary, const std::string& where) {
  ByteMap<TokenId> ids;  // of tokens of lower rank, and of all bytes
  for (TokenId id = 0; id < vocabulary.tokens.size(); ++id)
    if (vocabulary.tokens[id].size() == 1) ids[vocabulary.tokens[id]] = id;
  MergeTable table;
  std::vector<TokenId> parts;
  const auto add = [&](TokenId left, TokenId right, TokenId result) {
    if (table.insert({left, right, result})) vocabulary.merges.push_back({left, right, result});
  };
  for (TokenId id = 0; id < vocabulary.tokens.size(); ++id) {
    const std::string_view token = vocabulary.tokens[id];
    if (token.size() < 2) continue;
    if (ids.find(token))
      throw UserError("{}: expected each token once, found that of rank {} again", where, id);
    parts.clear();
    for (const char& byte : token) parts.push_back(*ids.find({&byte, 1}));
    table.apply(parts, 0);
    if (parts.size() == 2) {
      add(parts[0], parts[1], id);
    } else {
      vocabulary.whole_words_first = true;
      constexpr std::size_t kLongest = 256;  // looking at every split takes the square of this
      for (std::size_t cut = 1; cut < token.size() && token.size() <= kLongest; ++cut) {
        const TokenId* left = ids.find(token.substr(0, cut));
        const TokenId* right = ids.find(token.substr(cut));
        if (left && right) add(*left, *right, id);
      }
    }
    ids[token] = id;
  }
}

}  // namespace

BpeVocabulary parse_tiktoken(std::string_view text, const std::string& where) {
  BpeVocabulary vocabulary;
  for (Index line_number = 1; !text.empty(); ++line_number) {
    const std::size_t newline = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, newline);
    text.remove_prefix(std::min(newline + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty()) read_line(line, fmt::format("{}:{}", where, line_number), vocabulary.tokens);
  }
  auto& tokens = vocabulary.tokens;
  check_all_bytes(vocabulary, where);
  derive_merges(vocabulary, where);
  const auto unused = std::find(tokens.begin(), tokens.end(), "");
  vocabulary.end_of_text = static_cast<TokenId>(unused - tokens.begin());
  if (unused == tokens.end())
    tokens.emplace_back(kEndOfText);
  else
    *unused = kEndOfText;
  vocabulary.specials = {vocabulary.end_of_text};
  return vocabulary;
}

}  // namespace ddl
