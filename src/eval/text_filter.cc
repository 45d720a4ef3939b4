#include "eval/text_filter.h"

#include <cstddef>
#include <utility>

#include "core/error.h"
#include "core/options.h"
#include "eval/python_text.h"

namespace ddl {
namespace {

std::string replace_all(std::string_view text, std::string_view what, std::string_view with) {
  std::string out;
  for (std::size_t at = 0;;) {
    const std::size_t found = text.find(what, at);
    out += text.substr(at, found - at);
    if (found == std::string_view::npos) return out;
    out += with;
    at = found + what.size();
  }
}

// Deletes [...], each up to its nearest closing bracket on the same line.
std::string without_brackets(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] == '[') {
      const std::size_t end = text.find_first_of("]\n", at);
      if (end != std::string_view::npos && text[end] == ']') {
        at = end + 1;
        continue;
      }
    }
    out += text[at++];
  }
  return out;
}

// HellaSwag's texts come from WikiHow with its marks in them. In this order, and without a last strip:
// endings that began with a mark keep a space, three spaces become two.
std::string wikihow(std::string_view text) {
  return replace_all(without_brackets(replace_all(python_strip(text), " [title]", ". ")), "  ", " ");
}

std::size_t blank_of(std::string_view sentence) {
  const std::size_t at = sentence.find('_');
  if (at == std::string_view::npos) throw UserError("the sentence has no '_' to fill in: \"{}\"", sentence);
  return at;
}

// Words end at a space only, so a line break stays inside its word.
std::size_t last_word_begin(std::string_view text) {
  const std::size_t space = text.rfind(' ');
  return space == std::string_view::npos ? 0 : space + 1;
}

struct Entry {
  const char* name;
  TextFilter filter;
};

const std::vector<Entry>& filters() {
  static const std::vector<Entry> list = {
      {"strip", [](std::string_view t) { return std::string(python_strip(t)); }},
      {"lstrip", [](std::string_view t) { return std::string(python_lstrip(t)); }},
      {"rstrip", [](std::string_view t) { return std::string(python_rstrip(t)); }},
      {"capitalize", python_capitalize},
      {"wikihow", wikihow},
      {"before_blank", [](std::string_view t) { return std::string(t.substr(0, blank_of(t))); }},
      {"after_blank", [](std::string_view t) { return std::string(t.substr(blank_of(t) + 1)); }},
      {"last_word", [](std::string_view t) { return std::string(t.substr(last_word_begin(t))); }},
      {"all_but_last_word",
       [](std::string_view t) {
         const std::size_t begin = last_word_begin(t);
         return std::string(t.substr(0, begin == 0 ? 0 : begin - 1));
       }},
  };
  return list;
}

}  // namespace

std::vector<std::string> text_filter_names() {
  std::vector<std::string> names;
  for (const Entry& entry : filters()) names.emplace_back(entry.name);
  return names;
}

TextFilter find_text_filter(std::string_view name) {
  for (const Entry& entry : filters())
    if (entry.name == name) return entry.filter;
  throw UserError("unknown filter '{}'; did you mean '{}'?", name, nearest(name, text_filter_names()));
}

}  // namespace ddl
