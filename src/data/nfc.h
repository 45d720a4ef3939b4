// Unicode's normalisation form C: a letter and its accents become one character where there is one, marks come in their
// canonical order. The tables are utf8proc's. Bytes that are not UTF-8 stay as they are, and nothing combines across them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ddl {

// `text` in form C. Where it has that form already, as nearly all text does, the result is `text` itself and nothing is
// copied; else it is in `buffer`.
std::string_view to_nfc(std::string_view text, std::string& buffer);

// Whether the forms of text[0..at) and text[at..), joined, are that of the whole. `at` is the beginning of a character.
// False also for a few places where a cut would do no harm.
bool can_cut_nfc(std::string_view text, std::size_t at);

}  // namespace ddl
