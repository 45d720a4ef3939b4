#include "eval/template.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/error.h"
#include "core/index.h"
#include "eval/python_text.h"

namespace ddl {
namespace {

// Calls visit(value) with what the path leads to, once per element where it passes through a list of objects.
// False where it leads nowhere.
template <class Visit>
bool walk(const Json& value, std::string_view path, Visit&& visit) {
  if (path.empty()) {
    visit(value);
    return true;
  }
  if (value.is_array())  // of objects only: a path passes through one list, so no row can nest deeper than it
    return std::all_of(value.begin(), value.end(), [&](const Json& element) {
      return element.is_object() && walk(element, path, visit);
    });
  if (!value.is_object()) return false;
  const std::size_t dot = path.find('.');
  const auto inner = value.find(std::string(path.substr(0, dot)));
  if (inner == value.end()) return false;
  return walk(*inner, dot == std::string_view::npos ? "" : path.substr(dot + 1), visit);
}

std::string text_of(const Json& value, const std::string& column) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_unsigned()) return fmt::format("{}", value.get<std::uint64_t>());
  if (value.is_number_integer()) return fmt::format("{}", value.get<std::int64_t>());
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  throw UserError("column '{}' is {}, expected a string or a whole number", column, json_kind(value));
}

}  // namespace

const char* json_kind(const Json& value) {
  switch (value.type()) {
    case Json::value_t::string:
      return "a string";
    case Json::value_t::array:
      return "a list";
    case Json::value_t::object:
      return "an object";
    case Json::value_t::boolean:
      return "true or false";
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
      return "a whole number";
    case Json::value_t::number_float:
      return "a fraction";
    default:
      return "null";
  }
}

bool has_column(const Json& row, std::string_view path) {
  return walk(row, path, [](const Json&) {});
}

Template::Template(std::string_view source) {
  for (;;) {
    Part part;
    const std::size_t open = source.find("{{");
    part.text = source.substr(0, open);
    if (open == std::string_view::npos) {
      parts_.push_back(std::move(part));
      return;
    }
    const std::size_t close = source.find("}}", open);
    if (close == std::string_view::npos) throw UserError("\"{}\": a {{{{ without its }}}}", source);
    std::string_view inside = source.substr(open + 2, close - open - 2);
    source.remove_prefix(close + 2);
    for (bool first = true;; first = false) {
      const std::size_t bar = inside.find('|');
      const std::string_view word = python_strip(inside.substr(0, bar));
      if (first)
        part.column = word;
      else
        part.filters.push_back(find_text_filter(word));
      if (bar == std::string_view::npos) break;
      inside.remove_prefix(bar + 1);
    }
    if (part.column.empty()) throw UserError("{{{{ }}}} names no column");
    if (part.column.ends_with('?')) {
      part.optional = true;
      part.column.pop_back();
    } else {
      columns_.push_back(part.column);
    }
    parts_.push_back(std::move(part));
  }
}

std::string Template::fill(const Json& row) const {
  std::string text;
  for (const Part& part : parts_) {
    text += part.text;
    if (part.column.empty()) continue;
    const Json* found = nullptr;
    Index count = 0;
    const bool there = walk(row, part.column, [&](const Json& value) { found = &value, ++count; });
    if (part.optional && (!there || (count == 1 && found->is_null()))) continue;
    if (!there || count != 1)
      throw UserError("column '{}' is {}", part.column,
                      count > 1 ? "a list, expected one string" : "missing");
    std::string value = text_of(*found, part.column);
    for (const TextFilter filter : part.filters) value = filter(value);
    text += value;
  }
  return text;
}

ListTemplate::ListTemplate(const Json& source) {
  if (source.is_string()) {
    const Template one(source.get<std::string>());
    is_column_ = true;
    if (one.parts_.size() != 2 || !one.parts_[0].text.empty() || !one.parts_[1].text.empty() ||
        !one.parts_[0].filters.empty() || one.parts_[0].optional)
      throw UserError(
          "\"{}\": expected one column that holds a list, \"{{{{choices}}}}\", or a list of templates",
          source.get<std::string>());
    templates_.push_back(one);
  } else if (source.is_array()) {
    for (const Json& entry : source) {
      if (!entry.is_string())
        throw UserError("a list of templates holds {}, expected strings", json_kind(entry));
      templates_.emplace_back(entry.get<std::string>());
    }
  } else {
    throw UserError("expected a column that holds a list, or a list of templates; found {}",
                    json_kind(source));
  }
  for (const Template& t : templates_)
    columns_.insert(columns_.end(), t.columns().begin(), t.columns().end());
}

std::vector<std::string> ListTemplate::fill(const Json& row) const {
  std::vector<std::string> texts;
  if (!is_column_) {
    for (const Template& t : templates_) texts.push_back(t.fill(row));
    return texts;
  }
  const std::string& column = columns_.front();
  std::vector<const Json*> found;
  if (!walk(row, column, [&](const Json& value) { found.push_back(&value); }))
    throw UserError("column '{}' is missing", column);
  if (found.size() == 1) {
    const Json& list = *found.front();
    if (!list.is_array()) throw UserError("column '{}' is {}, expected a list", column, json_kind(list));
    found.clear();
    for (const Json& element : list) found.push_back(&element);
  }
  for (const Json* value : found) texts.push_back(text_of(*value, column));
  return texts;
}

}  // namespace ddl
