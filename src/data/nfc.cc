#include "data/nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

namespace ddl {
namespace {

using CodePoint = utf8proc_int32_t;

constexpr CodePoint kTableEnd = 0x30000;  // what lies above neither decomposes nor combines
constexpr std::size_t kLongest = 32;      // a character decomposes into four at most
constexpr std::uint8_t kInert = 0;        // is as it must be, and combines with nothing in front of it
constexpr std::uint8_t kLook = 255;       // changes, or may combine with what is in front of it

int combining_class(CodePoint code) { return utf8proc_get_property(code)->combining_class; }

std::size_t decompose(CodePoint code, CodePoint* out) {
  const utf8proc_ssize_t count = utf8proc_decompose_char(
      code, out, kLongest, static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE), nullptr);
  return count > 0 && count <= static_cast<utf8proc_ssize_t>(kLongest) ? static_cast<std::size_t>(count) : 0;
}

// In place; what is there is decomposed and in canonical order. Returns how many are left.
std::size_t compose(CodePoint* codes, std::size_t count) {
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  return static_cast<std::size_t>(
      utf8proc_normalize_utf32(codes, static_cast<utf8proc_ssize_t>(count), options));
}

// What a character means for the form: kInert, kLook, or a combining class. Marks in the order of their classes, none of
// them kLook, are in form C.
class NfcTable {
 public:
  NfcTable() : kinds_(kTableEnd) {
    std::vector<std::pair<CodePoint, CodePoint>> composites;  // and their first part
    std::array<CodePoint, kLongest> parts{};
    for (CodePoint code = 0; code < kTableEnd; ++code) {
      if (const int mark = combining_class(code); mark != 0 && kind(code) == kInert)
        kinds_[code] = static_cast<std::uint8_t>(mark);
      const std::size_t count = decompose(code, parts.data());
      if (count == 0 || (count == 1 && parts[0] == code)) continue;
      std::array<CodePoint, kLongest> joined = parts;
      if (compose(joined.data(), count) == 1 && joined[0] == code) {
        composites.emplace_back(code, parts[0]);
        for (std::size_t i = 1; i < count; ++i) kinds_[parts[i]] = kLook;
      } else {
        kinds_[code] = kLook;
      }
    }
    for (const auto& [code, first] : composites)
      if (kind(first) != kInert) kinds_[code] = kLook;
  }

  std::uint8_t kind(CodePoint code) const { return code < kTableEnd ? kinds_[code] : kInert; }

 private:
  std::vector<std::uint8_t> kinds_;
};

const NfcTable& nfc_table() {
  static const NfcTable table;
  return table;
}

struct Utf8Character {
  CodePoint code = 0;
  std::size_t bytes = 0;  // 0: not UTF-8
};

Utf8Character utf8_character(std::string_view text, std::size_t at) {
  Utf8Character character;
  const auto* begin = reinterpret_cast<const utf8proc_uint8_t*>(text.data() + at);
  const utf8proc_ssize_t bytes =
      utf8proc_iterate(begin, static_cast<utf8proc_ssize_t>(text.size() - at), &character.code);
  character.bytes = bytes > 0 ? static_cast<std::size_t>(bytes) : 0;
  return character;
}

// The first byte at `at` or after that is not ASCII.
std::size_t ascii_end(std::string_view text, std::size_t at) {
  for (std::uint64_t eight; at + sizeof eight <= text.size(); at += sizeof eight) {
    std::memcpy(&eight, text.data() + at, sizeof eight);
    if (eight & 0x8080808080808080u) break;
  }
  while (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80) ++at;
  return at;
}

// Brings short stretches of valid UTF-8 into form C. utf8proc's own function for texts sorts marks in quadratic time, and
// loses U+11A7 behind a Hangul syllable, so this one sorts, and no stretch has a kInert character but in front.
class StretchNormalizer {
 public:
  const std::string& normalize(std::string_view stretch) {
    codes_.clear();
    for (std::size_t at = 0; at < stretch.size();) {
      const Utf8Character character = utf8_character(stretch, at);
      at += character.bytes;
      std::array<CodePoint, kLongest> parts;
      codes_.insert(codes_.end(), parts.begin(), parts.begin() + decompose(character.code, parts.data()));
    }
    sort_marks();
    codes_.resize(compose(codes_.data(), codes_.size()));
    result_.clear();
    for (const CodePoint code : codes_) {
      std::array<utf8proc_uint8_t, 4> bytes{};
      const auto count = static_cast<std::size_t>(utf8proc_encode_char(code, bytes.data()));
      result_.append(reinterpret_cast<const char*>(bytes.data()), count);
    }
    return result_;
  }

 private:
  void sort_marks() {
    const auto is_mark = [](CodePoint code) { return combining_class(code) != 0; };
    for (auto from = codes_.begin(); from != codes_.end();) {
      from = std::find_if(from, codes_.end(), is_mark);
      const auto to = std::find_if_not(from, codes_.end(), is_mark);
      std::stable_sort(from, to,
                       [](CodePoint a, CodePoint b) { return combining_class(a) < combining_class(b); });
      from = to;
    }
  }

  std::vector<CodePoint> codes_;
  std::string result_;
};

}  // namespace

std::string_view to_nfc(std::string_view text, std::string& buffer) {
  std::size_t at = ascii_end(text, 0);
  if (at == text.size()) return text;
  const NfcTable& table = nfc_table();
  StretchNormalizer normalizer;
  std::size_t stretch = at > 0 ? at - 1 : 0;  // where what the next mark belongs to begins
  std::size_t copied = 0;                     // text in front of it is in the buffer
  std::uint8_t last = kInert;                 // the class of the mark in front of `at`
  buffer.clear();
  while (at < text.size()) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      at = ascii_end(text, at);
      stretch = at - 1, last = kInert;
      continue;
    }
    const Utf8Character character = utf8_character(text, at);
    if (character.bytes == 0) {
      stretch = ++at, last = kInert;
      continue;
    }
    const std::uint8_t kind = table.kind(character.code);
    if (kind == kInert) stretch = at;
    at += character.bytes;
    if (kind == kInert || (kind != kLook && kind >= last)) {
      last = kind;
      continue;
    }
    for (; at < text.size();) {  // to the next character that nothing in front of it changes
      const Utf8Character next = utf8_character(text, at);
      if (next.bytes == 0 || table.kind(next.code) == kInert) break;
      at += next.bytes;
    }
    const std::string_view before = text.substr(stretch, at - stretch);
    const std::string& after = normalizer.normalize(before);
    if (after != before) {
      buffer.append(text, copied, stretch - copied);
      buffer += after;
      copied = at;
    }
    stretch = at, last = kInert;
  }
  if (copied == 0) return text;
  buffer.append(text, copied);
  return buffer;
}

bool can_cut_nfc(std::string_view text, std::size_t at) {
  if (at == 0 || at >= text.size()) return true;
  const Utf8Character character = utf8_character(text, at);
  return character.bytes == 0 || nfc_table().kind(character.code) == kInert;
}

}  // namespace ddl
