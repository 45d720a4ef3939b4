#include "core/json.h"

namespace ddl {

bool nests_too_deeply(std::string_view json_text) {
  constexpr int kDeepest = 100;  // no file of ours, nor of those we read, comes near
  int depth = 0;
  for (std::size_t i = 0; i < json_text.size(); ++i) {
    const char c = json_text[i];
    if (c == '"') {  // brackets in a string do not count
      for (++i; i < json_text.size() && json_text[i] != '"'; ++i)
        if (json_text[i] == '\\') ++i;
    } else if (c == '[' || c == '{') {
      if (++depth > kDeepest) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

Json parse_json(std::string_view text) {
  if (nests_too_deeply(text)) return Json(Json::value_t::discarded);
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

PlainJson parse_plain_json(std::string_view text) {
  if (nests_too_deeply(text)) return PlainJson(PlainJson::value_t::discarded);
  return PlainJson::parse(text, nullptr, /*allow_exceptions=*/false);
}

std::string to_line(const PlainJson& json) {
  return json.dump(-1, ' ', false, PlainJson::error_handler_t::replace);
}
std::string to_line(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string to_text(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace ddl
