// JSON values. Reading and writing text is compiled once, in json.cc: the parser and the serializer are the
// costliest templates of the build.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace ddl {

using Json = nlohmann::ordered_json;  // keeps the order fields were written in

// Deeper nesting is refused: copying and printing a value recurse, and a file must not exhaust the stack.
constexpr int kMaxJsonDepth = 200;

// The value of a text; where it is not JSON or nested too deeply, one that is_discarded(), and so neither an
// object nor anything else; `error` then says where and why. Safe for files of others: takes time n log n.
// Of several fields of one name the last counts.
Json parse_json(std::string_view text, std::string* error = nullptr);

// Full precision; NaN and infinities become null, bytes that are not UTF-8 are replaced. to_line: without
// line breaks; to_text: indented, with a line break at the end, for files people read.
std::string to_line(const Json& json);
std::string to_text(const Json& json);

}  // namespace ddl
