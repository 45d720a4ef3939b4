#include "core/base64.h"

#include <cstddef>
#include <cstdint>

namespace ddl {
namespace {

constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

}  // namespace

std::string encode_base64(std::string_view bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t bits = 0;
    for (std::size_t k = i; k < i + 3; ++k)
      bits = bits << 8 | (k < bytes.size() ? static_cast<unsigned char>(bytes[k]) : 0u);
    const std::size_t present = bytes.size() - i;
    for (std::size_t letter = 0; letter < 4; ++letter)
      text += letter <= present ? kLetters[bits >> (18 - 6 * letter) & 63] : '=';
  }
  return text;
}

std::optional<std::string> decode_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  std::size_t padding = 0;
  while (padding < 2 && text.ends_with('=')) text.remove_suffix(1), ++padding;
  std::string bytes;
  std::uint32_t bits = 0;
  int held = 0;  // bits of `bits` that count
  for (const char c : text) {
    const std::size_t value = kLetters.find(c);
    if (value == std::string_view::npos) return std::nullopt;
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    if ((held += 6) < 8) continue;
    held -= 8;
    bytes += static_cast<char>(bits >> held & 255);
  }
  return bytes;
}

}  // namespace ddl
