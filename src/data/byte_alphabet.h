// The byte alphabet of GPT-2's files: JSON cannot hold arbitrary bytes, so each byte is written as one
// printable character. Bytes that are printable in Latin-1 stand for themselves; the others are U+0100,
// U+0101, ... in order (a space is U+0120).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ddl {

std::string to_byte_alphabet(std::string_view bytes);

// Nothing where the text has a character outside the alphabet or is not UTF-8.
std::optional<std::string> from_byte_alphabet(std::string_view text);

}  // namespace ddl
