#include "eval/python_words.h"

namespace ddl {
namespace {

// The bytes of the white-space character at the beginning of `text`, 0 where there is none. Python's \s:
// U+0009-000D, 001C-0020, 0085, 00A0, 1680, 2000-200A, 2028, 2029, 202F, 205F, 3000.
std::size_t space_bytes(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0; };
  const int a = byte(0), b = byte(1), c = byte(2);
  if (a < 0x80) return (a >= 0x09 && a <= 0x0d) || (a >= 0x1c && a <= 0x20) ? 1 : 0;
  if (a == 0xc2) return b == 0x85 || b == 0xa0 ? 2 : 0;
  if (a == 0xe1) return b == 0x9a && c == 0x80 ? 3 : 0;
  if (a == 0xe2 && b == 0x80) return (c >= 0x80 && c <= 0x8a) || c == 0xa8 || c == 0xa9 || c == 0xaf ? 3 : 0;
  if (a == 0xe2) return b == 0x81 && c == 0x9f ? 3 : 0;
  if (a == 0xe3) return b == 0x80 && c == 0x80 ? 3 : 0;
  return 0;
}

}  // namespace

void PythonWords::add(std::string_view piece) {
  for (std::size_t i = 0; i < piece.size();) {
    const std::size_t space = space_bytes(piece.substr(i));
    gaps_ += space > 0 && !in_gap_;
    in_gap_ = space > 0;
    i += space > 0 ? space : 1;
  }
}

}  // namespace ddl
