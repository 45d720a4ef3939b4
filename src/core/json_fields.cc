#include "core/json_fields.h"

#include <cstddef>
#include <cstdint>
#include <utility>

#include "core/error.h"

namespace ddl {
namespace {

std::string shown(const Json& json) {
  constexpr std::size_t kShownBytes = 80;
  const std::string text = to_line(json);
  return text.size() <= kShownBytes ? text : text.substr(0, kShownBytes) + "...";
}

}  // namespace

JsonFields::JsonFields(const Json& json, std::string file, std::string within)
    : json_(&json), file_(std::move(file)), within_(std::move(within)) {
  if (!json.is_object())
    throw UserError("{}: expected a JSON object{}", file_,
                    within_.empty() ? "" : fmt::format(" at {}", within_.substr(0, within_.size() - 1)));
}

const Json& JsonFields::at(const std::string& name) const {
  const auto found = json_->find(name);
  if (found == json_->end()) throw UserError("{}: '{}{}' is missing", file_, within_, name);
  return *found;
}

void JsonFields::refuse(const std::string& name, const std::string& expected) const {
  throw UserError("{}: '{}{}' is {}, expected {}", file_, within_, name, shown(at(name)), expected);
}

Index JsonFields::whole(const std::string& name, Index low, Index high) const {
  const Json& json = at(name);
  const bool fits = json.is_number_unsigned() ? json.get<std::uint64_t>() <= static_cast<std::uint64_t>(high)
                                              : json.is_number_integer() && json.get<Index>() <= high;
  if (!fits || json.get<Index>() < low)
    refuse(name, high == std::numeric_limits<Index>::max()
                     ? fmt::format("a whole number of {} or more", low)
                     : fmt::format("a whole number from {} to {}", low, high));
  return json.get<Index>();
}

double JsonFields::number(const std::string& name) const {
  if (!at(name).is_number()) refuse(name, "a number");
  return at(name).get<double>();
}

std::string JsonFields::text(const std::string& name) const {
  if (!at(name).is_string()) refuse(name, "a string");
  return at(name).get<std::string>();
}

JsonFields JsonFields::object(const std::string& name) const {
  if (!at(name).is_object()) refuse(name, "an object");
  return JsonFields(at(name), file_, within_ + name + ".");
}

std::vector<JsonFields> JsonFields::objects(const std::string& name) const {
  const Json& list = at(name);
  if (!list.is_array()) refuse(name, "an array");
  std::vector<JsonFields> fields;
  for (std::size_t i = 0; i < list.size(); ++i)
    fields.emplace_back(list[i], file_, fmt::format("{}{}[{}].", within_, name, i));
  return fields;
}

}  // namespace ddl
