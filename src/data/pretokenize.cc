// Written by hand rather than with a regular-expression library, for two reasons: bytes that are not UTF-8
// must pass through as ordinary data (PCRE2 refuses them or skips over them), and it is many times faster,
// because nearly all text is decided by one table lookup per byte. tests/data/pretokenize_test.cc
// compares it with PCRE2 on random strings.
#include "data/pretokenize.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>

#include "data/unicode_ranges.h"

namespace ddl {
namespace {

enum Kind : std::uint8_t { kOther, kLetter, kNumber, kSpace, kNotAscii };

constexpr std::array<Kind, 256> make_byte_kinds() {
  std::array<Kind, 256> kinds{};  // kOther
  for (int c = 'a'; c <= 'z'; ++c) kinds[static_cast<std::size_t>(c)] = kLetter;
  for (int c = 'A'; c <= 'Z'; ++c) kinds[static_cast<std::size_t>(c)] = kLetter;
  for (int c = '0'; c <= '9'; ++c) kinds[static_cast<std::size_t>(c)] = kNumber;
  for (int c = '\t'; c <= '\r'; ++c) kinds[static_cast<std::size_t>(c)] = kSpace;
  kinds[' '] = kSpace;
  for (std::size_t c = 0x80; c < 256; ++c) kinds[c] = kNotAscii;
  return kinds;
}
constexpr std::array<Kind, 256> kByteKinds = make_byte_kinds();

// White_Space above ASCII. (PCRE2's \s also has U+180E, which Unicode took out of it long ago; the tokenizers
// that GPT-2's ids come from do not.)
bool is_wide_space(std::uint32_t code) {
  return code == 0x85 || code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) ||
         code == 0x2028 || code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

Kind kind_of_code(std::uint32_t code) {
  if (is_wide_space(code)) return kSpace;
  const auto* range = std::upper_bound(std::begin(kUnicodeRanges), std::end(kUnicodeRanges), code,
                                       [](std::uint32_t c, const UnicodeRange& r) { return c < r.first; });
  if (range == std::begin(kUnicodeRanges)) return kOther;
  --range;
  if (code > range->last_and_kind >> 1) return kOther;
  return range->last_and_kind & 1 ? kNumber : kLetter;
}

struct Char {
  Kind kind;
  std::uint8_t bytes;
};

// The character at p. A byte that does not begin a well-formed UTF-8 sequence (overlong forms and surrogates
// are not well-formed) is a character of its own that is neither letter, number nor space.
Char wide_char_at(const char* p, const char* end) {
  const auto byte = [p](int i) { return static_cast<std::uint32_t>(static_cast<unsigned char>(p[i])); };
  const auto continues = [&](int i) { return (byte(i) & 0xc0) == 0x80; };
  const std::ptrdiff_t left = end - p;
  const std::uint32_t lead = byte(0);
  if (lead >= 0xc2 && lead <= 0xdf && left >= 2 && continues(1))
    return {kind_of_code((lead & 0x1f) << 6 | (byte(1) & 0x3f)), 2};
  if (lead >= 0xe0 && lead <= 0xef && left >= 3 && continues(1) && continues(2)) {
    const std::uint32_t code = (lead & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f);
    if (code >= 0x800) return {kind_of_code(code), 3};
  }
  if (lead >= 0xf0 && lead <= 0xf4 && left >= 4 && continues(1) && continues(2) && continues(3)) {
    const std::uint32_t code =
        (lead & 0x07) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 | (byte(3) & 0x3f);
    if (code >= 0x10000) return {kind_of_code(code), 4};
  }
  return {kOther, 1};
}

inline Kind byte_kind(const char* p) { return kByteKinds[static_cast<unsigned char>(*p)]; }

inline Char char_at(const char* p, const char* end) {
  const Kind kind = byte_kind(p);
  return kind == kNotAscii ? wide_char_at(p, end) : Char{kind, 1};
}

const char* run_end(const char* p, const char* end, Kind kind) {
  while (p != end) {
    if (byte_kind(p) == kind) {
      ++p;
      continue;
    }
    const Char c = char_at(p, end);
    if (c.kind != kind) break;
    p += c.bytes;
  }
  return p;
}

// 's 'd 'm 't 'll 've 're: 0 where p does not begin one.
std::ptrdiff_t contraction_bytes(const char* p, const char* end) {
  if (end - p < 2) return 0;
  const char a = p[1];
  if (a == 's' || a == 'd' || a == 'm' || a == 't') return 2;
  if (end - p < 3) return 0;
  const char b = p[2];
  return (a == 'l' && b == 'l') || (a == 'v' && b == 'e') || (a == 'r' && b == 'e') ? 3 : 0;
}

// \s+(?!\S)|\s+ : a run of white space gives its last character to what follows, unless it is that character
// alone or nothing follows.
const char* space_end(const char* p, const char* end) {
  const char* last = p;
  const char* at = p;
  while (at != end) {
    const Char c = char_at(at, end);
    if (c.kind != kSpace) break;
    last = at;
    at += c.bytes;
  }
  return at == end || last == p ? at : last;
}

const char* gpt2_end(const char* p, const char* end) {
  if (*p == '\'') {
    if (const std::ptrdiff_t bytes = contraction_bytes(p, end)) return p + bytes;
  }
  const char* word = p;
  if (*p == ' ' && p + 1 != end) ++word;  // the pattern's " ?"
  const Char first = char_at(word, end);
  if (first.kind == kSpace) return space_end(p, end);
  return run_end(word + first.bytes, end, first.kind);
}

// Numbers are cut out first, so white space in front of one is at the end of its text and keeps its last character.
const char* smollm_end(const char* p, const char* end) {
  const Char first = char_at(p, end);
  if (first.kind == kNumber) return p + first.bytes;
  if (first.kind != kSpace) return gpt2_end(p, end);
  const char* behind = run_end(p, end, kSpace);
  return behind != end && char_at(behind, end).kind == kNumber ? behind : gpt2_end(p, end);
}

bool is_line_end(const char* p) { return *p == '\r' || *p == '\n'; }

// As contraction_bytes, in any case; the long s (U+017F) is an s.
std::ptrdiff_t any_case_contraction_bytes(const char* p, const char* end) {
  if (end - p >= 3 && p[1] == '\xc5' && p[2] == '\xbf') return 3;
  char lower[3] = {};
  for (std::ptrdiff_t i = 0; i < std::min<std::ptrdiff_t>(end - p, 3); ++i)
    lower[i] = p[i] >= 'A' && p[i] <= 'Z' ? static_cast<char>(p[i] - 'A' + 'a') : p[i];
  return contraction_bytes(lower, lower + std::min<std::ptrdiff_t>(end - p, 3));
}

// The alternatives of the pattern in their order.
const char* llama3_end(const char* p, const char* end, int digits) {
  if (*p == '\'') {
    if (const std::ptrdiff_t bytes = any_case_contraction_bytes(p, end)) return p + bytes;
  }
  const Char first = char_at(p, end);
  const char* const second = p + first.bytes;
  const Char next = second == end ? Char{kSpace, 0} : char_at(second, end);
  if (first.kind == kLetter) return run_end(second, end, kLetter);
  if (first.kind != kNumber && !is_line_end(p) && next.kind == kLetter) return run_end(second, end, kLetter);
  if (first.kind == kNumber) {
    const char* at = second;
    for (int i = 1; i < digits && at != end; ++i) {
      const Char c = char_at(at, end);
      if (c.kind != kNumber) break;
      at += c.bytes;
    }
    return at;
  }
  if (first.kind == kOther || (*p == ' ' && next.kind == kOther && next.bytes > 0)) {
    const char* at = run_end(second, end, kOther);
    while (at != end && is_line_end(at)) ++at;
    return at;
  }
  const char* const behind = run_end(p, end, kSpace);
  for (const char* at = behind; at != p; --at)
    if (is_line_end(at - 1)) return at;
  return space_end(p, end);
}

}  // namespace

const char* pretoken_end(const char* p, const char* end, WordPattern pattern) {
  switch (pattern) {
    case WordPattern::kGpt2:
      return gpt2_end(p, end);
    case WordPattern::kSmolLm:
      return smollm_end(p, end);
    case WordPattern::kLlama3:
      return llama3_end(p, end, 3);
    case WordPattern::kQwen2:
      return llama3_end(p, end, 1);
  }
  return end;
}

// A run of letters or digits ends at a space, whatever is around it. What follows a cut never looks back.
std::size_t safe_cut(std::string_view text, std::size_t wanted) {
  for (std::size_t i = std::max<std::size_t>(wanted, 1); i < text.size(); ++i) {
    const Kind before = byte_kind(text.data() + i - 1);
    if (text[i] == ' ' && (before == kLetter || before == kNumber)) return i;
  }
  return text.size();
}

}  // namespace ddl
