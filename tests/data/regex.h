// Patterns for tests, by PCRE2: the standard library's take seconds to compile and long to search.
#pragma once

#ifndef PCRE2_CODE_UNIT_WIDTH
#define PCRE2_CODE_UNIT_WIDTH 8
#endif
#include <gtest/gtest.h>
#include <pcre2.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ddl {

class Regex {
 public:
  explicit Regex(const std::string& pattern, std::uint32_t options = 0) {
    int error = 0;
    PCRE2_SIZE where = 0;
    code_ = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), options, &error,
                          &where, nullptr);
    EXPECT_NE(code_, nullptr) << pattern << " at " << where;
    match_ = pcre2_match_data_create_from_pattern(code_, nullptr);
  }
  ~Regex() {
    pcre2_match_data_free(match_);
    pcre2_code_free(code_);
  }
  Regex(const Regex&) = delete;
  Regex& operator=(const Regex&) = delete;

  struct Match {
    std::size_t begin, end;
    std::vector<std::string> groups;  // [0] is the whole match; a group that took no part is empty
  };
  // The first match at `from` or after it; with PCRE2_ANCHORED only one that begins there.
  std::optional<Match> search(const std::string& text, std::size_t from = 0,
                              std::uint32_t options = 0) const {
    const int found = run(text, from, options);
    if (found <= 0) return std::nullopt;
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(match_);
    Match match{bounds[0], bounds[1], std::vector<std::string>(pcre2_get_ovector_count(match_))};
    for (int g = 0; g < found; ++g)
      if (bounds[2 * g] != PCRE2_UNSET)
        match.groups[g] = text.substr(bounds[2 * g], bounds[2 * g + 1] - bounds[2 * g]);
    return match;
  }
  // Only where the match that begins exactly at `from` ends.
  std::optional<std::size_t> end_of_match(const std::string& text, std::size_t from) const {
    if (run(text, from, PCRE2_ANCHORED) <= 0) return std::nullopt;
    return pcre2_get_ovector_pointer(match_)[1];
  }

 private:
  int run(const std::string& text, std::size_t from, std::uint32_t options) const {
    return pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from, options, match_,
                       nullptr);
  }

  pcre2_code* code_;
  pcre2_match_data* match_;
};

}  // namespace ddl
