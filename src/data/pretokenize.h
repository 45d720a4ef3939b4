// GPT-2's pre-tokenisation: text is cut into words, and merges never cross a cut. The pattern is
//   '(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// matched again and again, which always covers the whole text.
#pragma once

#include <cstddef>
#include <string_view>

namespace ddl {

// The end of the word that begins at `begin`; begin < end. `end` must be the end of the whole text, because
// the pattern looks one character ahead.
const char* pretoken_end(const char* begin, const char* end);

// Calls word(std::string_view) for each word of the text, in order.
template <class F>
void for_each_pretoken(std::string_view text, F&& word) {
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    const char* const stop = pretoken_end(at, end);
    word(std::string_view(at, static_cast<std::size_t>(stop - at)));
    at = stop;
  }
}

// A place at or after `wanted` where text may be cut in two so that both halves give the words of the whole;
// the size of the text if there is none. Lets one long document be shared between threads.
std::size_t safe_cut(std::string_view text, std::size_t wanted);

}  // namespace ddl
