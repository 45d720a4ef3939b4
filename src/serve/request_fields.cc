#include "serve/request_fields.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "core/error.h"
#include "serve/api_error.h"

namespace ddl {
namespace {

bool deeper_than(const Json& json, int depth) {
  if (!json.is_structured()) return false;
  if (depth == 0) return true;
  for (const Json& inner : json)
    if (deeper_than(inner, depth - 1)) return true;
  return false;
}

}  // namespace

RequestFields::RequestFields(const std::string& body) {
  std::string error;
  json_ = parse_json(body, &error);
  if (json_.is_discarded()) throw ApiError(400, "the body is not JSON: " + error, "", "invalid_json");
  if (!json_.is_object()) throw ApiError(400, "the body must be a JSON object", "", "invalid_json");
  if (deeper_than(json_, kMaxDepth))
    throw ApiError(400, fmt::format("the body is nested more than {} levels deep", kMaxDepth), "",
                   "invalid_json");
}

RequestFields::RequestFields(const Json& object, std::string within)
    : json_(object), within_(std::move(within)) {
  if (!json_.is_object())
    throw ApiError(400, fmt::format("{}: expected an object", within_),
                   within_.substr(0, within_.size() - 1));
}

const Json* RequestFields::find(const std::string& name) {
  asked_.insert(name);
  const auto found = json_.find(name);
  return found == json_.end() || found->is_null() ? nullptr : &*found;
}

const Json& RequestFields::required(const std::string& name) {
  if (const Json* found = find(name)) return *found;
  throw ApiError(400, fmt::format("{}{} is missing", within_, name), within_ + name, "missing_field");
}

void RequestFields::fail(const std::string& name, const std::string& expected) const {
  constexpr std::size_t kShown = 60;
  std::string found = to_line(json_.value(name, Json()));
  if (found.size() > kShown) found = found.substr(0, kShown) + "...";
  throw ApiError(400, fmt::format("{}{}: expected {}, found {}", within_, name, expected, found),
                 within_ + name, "invalid_value");
}

Index RequestFields::whole(const std::string& name, Index otherwise, Index low, Index high) {
  const Json* found = find(name);
  if (!found) return otherwise;
  const bool fits = found->is_number_unsigned()
                        ? found->get<std::uint64_t>() <= static_cast<std::uint64_t>(high)
                        : found->is_number_integer() && found->get<Index>() <= high;
  if (!fits || found->get<Index>() < low) fail(name, fmt::format("a whole number from {} to {}", low, high));
  return found->get<Index>();
}

double RequestFields::number(const std::string& name, double otherwise, double low, double high) {
  const Json* found = find(name);
  if (!found) return otherwise;
  const double value = found->is_number() ? found->get<double>() : NAN;
  if (!(value >= low && value <= high)) fail(name, fmt::format("a number from {} to {}", low, high));
  return value;
}

bool RequestFields::flag(const std::string& name, bool otherwise) {
  const Json* found = find(name);
  if (!found) return otherwise;
  if (!found->is_boolean()) fail(name, "true or false");
  return found->get<bool>();
}

std::string RequestFields::text(const std::string& name, const std::string& otherwise) {
  const Json* found = find(name);
  if (!found) return otherwise;
  if (!found->is_string()) fail(name, "a string");
  return found->get<std::string>();
}

std::vector<std::int32_t> RequestFields::tokens(const std::string& name, const Json& list,
                                                const std::string& expected) const {
  constexpr std::int32_t kLargest = std::numeric_limits<std::int32_t>::max();
  if (!list.is_array()) fail(name, expected);
  std::vector<std::int32_t> tokens;
  for (const Json& token : list) {
    if (!token.is_number_integer() || token < 0 || token > kLargest) fail(name, expected);
    tokens.push_back(token.get<std::int32_t>());
  }
  return tokens;
}

void RequestFields::ignore(std::initializer_list<const char*> names) {
  asked_.insert(names.begin(), names.end());
}

void RequestFields::refuse(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (find(name))
      throw ApiError(400, fmt::format("{}{} is not supported by this server", within_, name), within_ + name,
                     "unsupported_parameter");
}

void RequestFields::finish() {
  for (const auto& [name, value] : json_.items())
    if (!asked_.contains(name))
      throw ApiError(400, fmt::format("{}{} is no field of this request", within_, name), within_ + name,
                     "unknown_parameter");
}

}  // namespace ddl
