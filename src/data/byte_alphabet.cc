#include "data/byte_alphabet.h"

#include <array>
#include <cstdint>

namespace ddl {
namespace {

constexpr std::size_t kCodes = 256 + 68;  // 68 bytes are not printable

struct Alphabet {
  std::array<std::uint16_t, 256> code_of_byte{};
  std::array<std::int16_t, kCodes> byte_of_code{};
};

constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  for (auto& byte : alphabet.byte_of_code) byte = -1;
  std::uint16_t next = 256;
  for (std::uint16_t b = 0; b < 256; ++b) {
    const bool printable = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
    alphabet.code_of_byte[b] = printable ? b : next++;
    alphabet.byte_of_code[alphabet.code_of_byte[b]] = static_cast<std::int16_t>(b);
  }
  return alphabet;
}
constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

std::string to_byte_alphabet(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    const unsigned code = kAlphabet.code_of_byte[static_cast<unsigned char>(c)];
    if (code < 0x80) {
      text += static_cast<char>(code);
    } else {
      text += static_cast<char>(0xc0 | code >> 6);
      text += static_cast<char>(0x80 | (code & 0x3f));
    }
  }
  return text;
}

std::optional<std::string> from_byte_alphabet(std::string_view text) {
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned code = static_cast<unsigned char>(text[i]);
    if (code >= 0x80) {  // every wide character of the alphabet has two bytes
      if (code < 0xc2 || code > 0xdf || i + 1 == text.size()) return std::nullopt;
      const unsigned second = static_cast<unsigned char>(text[++i]);
      if ((second & 0xc0) != 0x80) return std::nullopt;
      code = (code & 0x1f) << 6 | (second & 0x3f);
    }
    if (code >= kCodes || kAlphabet.byte_of_code[code] < 0) return std::nullopt;
    bytes += static_cast<char>(kAlphabet.byte_of_code[code]);
  }
  return bytes;
}

}  // namespace ddl
