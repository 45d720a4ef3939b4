// JSON values. Reading and writing text is compiled once, in json.cc: the parser and the serializer are the
// costliest templates of the build.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace ddl {

using Json = nlohmann::ordered_json;  // keeps the order fields were written in
using PlainJson = nlohmann::json;     // does not, and so finds one among very many quickly

// The value of a text; where it is not JSON, one that is_discarded(), and so neither an object nor anything
// else. So is a text that nests absurdly deeply: writing it out recurses, and would not end well.
Json parse_json(std::string_view text);
PlainJson parse_plain_json(std::string_view text);  // the same, for files that may hold very many fields
bool nests_too_deeply(std::string_view json_text);

// Full precision; NaN and infinities become null, bytes that are not UTF-8 are replaced. to_line: without
// line breaks; to_text: indented, with a line break at the end, for files people read.
std::string to_line(const Json& json);
std::string to_line(const PlainJson& json);
std::string to_text(const Json& json);

}  // namespace ddl
