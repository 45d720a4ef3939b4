#include "data/text_cut.h"

#include <algorithm>

#include "data/nfc.h"

namespace ddl {
namespace {

constexpr int kMarksAtMost = 256;  // on one letter: more are no text, so anywhere is as good

bool is_alnum(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }
bool is_visible(char c) { return c > ' ' && c < 0x7f; }

}  // namespace

std::size_t exact_cut(std::string_view text, std::size_t at_least) {
  for (std::size_t i = std::max<std::size_t>(at_least, 1);; ++i) {
    i = text.find('\n', i);
    if (i == std::string_view::npos || i + 1 >= text.size()) return std::string_view::npos;
    if (is_alnum(text[i - 1]) && is_visible(text[i + 1])) return i;
  }
}

std::size_t piece_end(std::string_view text) {
  if (text.size() < 2 * kPieceBytes) return std::string_view::npos;
  const std::size_t exact = exact_cut(text.substr(0, kMaxPieceBytes), kPieceBytes);
  if (exact != std::string_view::npos) return exact;
  if (text.size() < kMaxPieceBytes) return std::string_view::npos;
  std::size_t cut = kMaxPieceBytes - 8;
  // Back over at most three continuation bytes; more of them are not UTF-8, so anywhere is as good.
  const auto to_character = [&] {
    for (int i = 0; i < 3 && (static_cast<unsigned char>(text[cut]) & 0xc0) == 0x80; ++i) --cut;
  };
  to_character();
  const std::size_t first = cut;
  for (int i = 0; i <= kMarksAtMost; ++i) {
    if (can_cut_nfc(text, cut)) return cut;
    --cut;
    to_character();
  }
  return first;
}

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n\v\f") == std::string_view::npos;
}

}  // namespace ddl
