// Pre-tokenisation: text is cut into words, and merges never cross a cut. A pattern is matched again and again, which always
// covers the whole text:
//   gpt2     '(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//   smollm   every character of \p{N} is a word; what stands between them is cut as gpt2 cuts it
//   llama3   (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
//   qwen2    the same with \p{N} instead of \p{N}{1,3}
#pragma once

#include <cstddef>
#include <string_view>

namespace ddl {

enum class WordPattern { kGpt2, kSmolLm, kLlama3, kQwen2 };

// The end of the word that begins at `begin`; begin < end. `end` must be the end of the whole text, because
// the pattern looks one character ahead.
const char* pretoken_end(const char* begin, const char* end, WordPattern pattern = WordPattern::kGpt2);

// Calls word(std::string_view) for each word of the text, in order.
template <class F>
void for_each_pretoken(std::string_view text, WordPattern pattern, F&& word) {
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    const char* const stop = pretoken_end(at, end, pattern);
    word(std::string_view(at, static_cast<std::size_t>(stop - at)));
    at = stop;
  }
}

template <class F>
void for_each_pretoken(std::string_view text, F&& word) {
  for_each_pretoken(text, WordPattern::kGpt2, word);
}

// A place at or after `wanted` where text may be cut in two so that both halves give the words of the whole;
// the size of the text if there is none (gpt2). Lets one long document be shared between threads.
std::size_t safe_cut(std::string_view text, std::size_t wanted);

}  // namespace ddl
