// GPT-2's pattern for words, by PCRE2.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "data/regex.h"

namespace ddl {

// A pattern as tokenizers write it, whose \s and \S are Unicode's White_Space. PCRE2's own \s has U+180E,
// which is not, so the class is spelled out.
inline std::string with_white_space(std::string pattern) {
  const std::string space =
      R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
  for (const auto& [from, to] : {std::pair<std::string, std::string>{"[^\\s", "[^" + space},
                                 {"\\s+", "[" + space + "]+"},
                                 {"\\s*", "[" + space + "]*"},
                                 {"\\S", "[^" + space + "]"}})
    for (std::size_t at = 0; (at = pattern.find(from, at)) != pattern.npos; at += to.size())
      pattern.replace(at, from.size(), to);
  return pattern;
}

class Pattern {
 public:
  explicit Pattern(const std::string& pattern) : regex_(with_white_space(pattern), PCRE2_UTF | PCRE2_UCP) {}
  // The end of the match that begins exactly at `at`; `at` itself where there is none.
  std::size_t match(const std::string& text, std::size_t at) const {
    return regex_.end_of_match(text, at).value_or(at);
  }
  std::vector<std::string> split(const std::string& text) const {
    std::vector<std::string> words;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = match(text, at);
      if (end == at) {
        ADD_FAILURE() << "the pattern does not match at " << at;
        break;
      }
      words.push_back(text.substr(at, end - at));
      at = end;
    }
    return words;
  }

 private:
  Regex regex_;
};

// As published with GPT-2, but for the order of the contractions.
inline const char* const kGpt2Pattern =
    R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

}  // namespace ddl
