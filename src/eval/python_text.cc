#include "eval/python_text.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <span>

#include "eval/unicode_case.h"

namespace ddl {
namespace {

// The character that begins at `at`; a byte that is no character stands for itself and is left as it is.
struct Character {
  std::uint32_t code = 0;
  std::size_t bytes = 1;
};

bool continues(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

Character character_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) {
    return static_cast<std::uint32_t>(static_cast<unsigned char>(text[at + i]));
  };
  const std::uint32_t lead = byte(0);
  const std::size_t bytes = lead < 0x80       ? 1
                            : lead >> 5 == 6  ? 2
                            : lead >> 4 == 14 ? 3
                            : lead >> 3 == 30 ? 4
                                              : 1;
  if (bytes == 1 || at + bytes > text.size()) return {lead, 1};
  std::uint32_t code = lead & (0x7fu >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if (!continues(text[at + i])) return {lead, 1};
    code = code << 6 | (byte(i) & 0x3f);
  }
  return {code, bytes};
}

void append(std::string& text, std::uint32_t code) {
  const auto tail = [&](int shift) { text += static_cast<char>(0x80 | (code >> shift & 0x3f)); };
  if (code < 0x80) {
    text += static_cast<char>(code);
  } else if (code < 0x800) {
    text += static_cast<char>(0xc0 | code >> 6);
    tail(0);
  } else if (code < 0x10000) {
    text += static_cast<char>(0xe0 | code >> 12);
    tail(6), tail(0);
  } else {
    text += static_cast<char>(0xf0 | code >> 18);
    tail(12), tail(6), tail(0);
  }
}

bool is_space(std::uint32_t code) {
  return (code >= 0x09 && code <= 0x0d) || (code >= 0x1c && code <= 0x20) || code == 0x85 || code == 0xa0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 || code == 0x2029 ||
         code == 0x202f || code == 0x205f || code == 0x3000;
}

std::uint32_t mapped(std::uint32_t code, std::span<const CaseRange> ranges) {
  const auto range = std::lower_bound(ranges.begin(), ranges.end(), code,
                                      [](const CaseRange& r, std::uint32_t c) { return r.last < c; });
  if (range == ranges.end() || code < range->first || (code - range->first) % range->step != 0) return code;
  return code + static_cast<std::uint32_t>(range->delta);
}

void append_lower(std::string& out, std::uint32_t code) {
  if (code < 0x80)
    out += code >= 'A' && code <= 'Z' ? static_cast<char>(code + 32) : static_cast<char>(code);
  else if (code == 0x130)
    out += "i\xcc\x87";  // the only one that becomes two characters
  else
    append(out, mapped(code, kLowerRanges));
}

void append_title(std::string& out, std::uint32_t code) {
  if (code < 0x80) {
    out += code >= 'a' && code <= 'z' ? static_cast<char>(code - 32) : static_cast<char>(code);
    return;
  }
  for (const LongTitle& entry : kLongTitles)
    if (entry.code == code) {
      out += entry.title;
      return;
    }
  append(out, mapped(code, kTitleRanges));
}

}  // namespace

std::string_view python_lstrip(std::string_view text) {
  while (!text.empty()) {
    const Character first = character_at(text, 0);
    if (!is_space(first.code)) break;
    text.remove_prefix(first.bytes);
  }
  return text;
}

std::string_view python_rstrip(std::string_view text) {
  while (!text.empty()) {
    std::size_t begin = text.size() - 1;
    while (begin > 0 && text.size() - begin < 4 && continues(text[begin])) --begin;
    const Character last = character_at(text, begin);
    if (begin + last.bytes != text.size() || !is_space(last.code)) break;
    text.remove_suffix(last.bytes);
  }
  return text;
}

std::string_view python_strip(std::string_view text) { return python_lstrip(python_rstrip(text)); }

std::string python_capitalize(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const Character c = character_at(text, at);
    if (c.code >= 0x80 && c.bytes == 1)
      out += text[at];
    else if (at == 0)
      append_title(out, c.code);
    else
      append_lower(out, c.code);
    at += c.bytes;
  }
  return out;
}

Index code_points(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return !continues(c); });
}

}  // namespace ddl
