#include "serve/http.h"

#include <cstddef>
#include <string_view>

namespace ddl {
namespace {

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool decode_percent(std::string_view text, bool plus_is_space, std::string& out) {
  out.clear();
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '+' && plus_is_space) {
      out += ' ';
    } else if (text[i] != '%') {
      out += text[i];
    } else {
      if (i + 2 >= text.size()) return false;
      const int high = hex_value(text[i + 1]), low = hex_value(text[i + 2]);
      if (high < 0 || low < 0) return false;
      out += static_cast<char>(high * 16 + low);
      i += 2;
    }
  }
  return true;
}

}  // namespace

const std::string& HttpRequest::header(const std::string& name) const {
  static const std::string kNone;
  const auto found = headers.find(name);
  return found == headers.end() ? kNone : found->second;
}

std::vector<std::string> HttpRequest::all(const std::string& name) const {
  std::vector<std::string> values;
  const auto [begin, end] = query.equal_range(name);
  for (auto each = begin; each != end; ++each) values.push_back(each->second);
  return values;
}

std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

bool parse_target(const std::string& target, HttpRequest& request) {
  if (target.empty() || target[0] != '/') return false;
  const std::size_t mark = target.find('?');
  if (!decode_percent(std::string_view(target).substr(0, mark), false, request.path)) return false;
  request.query.clear();
  if (mark == std::string::npos) return true;
  std::string_view rest = std::string_view(target).substr(mark + 1);
  while (!rest.empty()) {
    const std::size_t end = rest.find('&');
    const std::string_view pair = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
    const std::size_t equals = pair.find('=');
    std::string name, value;
    if (!decode_percent(pair.substr(0, equals), true, name)) return false;
    if (equals != std::string_view::npos && !decode_percent(pair.substr(equals + 1), true, value))
      return false;
    if (!name.empty()) request.query.emplace(name, value);
  }
  return true;
}

}  // namespace ddl
