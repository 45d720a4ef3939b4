#include "report/page.h"

#include <array>
#include <cstddef>
#include <utility>

#include "core/base64.h"
#include "core/error.h"
#include "io/sha256.h"
#include "report/page_files.h"

namespace ddl {
namespace {

std::string replaced(std::string_view text, std::string_view what, std::string_view with) {
  std::string result;
  for (std::size_t from = 0;;) {
    const std::size_t at = text.find(what, from);
    result += text.substr(from, at - from);
    if (at == std::string_view::npos) return result;
    result += with;
    from = at + what.size();
  }
}

unsigned hex_digit(char c) { return static_cast<unsigned>(c <= '9' ? c - '0' : c - 'a' + 10); }

// 'sha256-BASE64': how a policy names an inline script or style.
std::string policy_hash(std::string_view text) {
  const std::string hex = sha256_hex(text);
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2)
    bytes += static_cast<char>(hex_digit(hex[i]) << 4 | hex_digit(hex[i + 1]));
  return "'sha256-" + encode_base64(bytes) + "'";
}

std::string page_file(std::string_view name) {
  const EmbeddedFile* file = find_embedded(kReportPageFiles, name);
  DDL_CHECK(file, "the page has no {}", name);
  return std::string(file->content);
}

}  // namespace

std::string escape_html(std::string_view text) {
  std::string escaped;
  for (const char c : text) switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped += c;
    }
  return escaped;
}

std::string json_for_html(const Json& json) {
  // These stand only inside strings, where JSON allows to write them by number.
  std::string text = to_line(json);
  const std::array<std::pair<std::string_view, std::string_view>, 5> kEscapes = {
      {{"<", "\\u003c"}, {">", "\\u003e"}, {"&", "\\u0026"}, {"\u2028", "\\u2028"}, {"\u2029", "\\u2029"}}};
  for (const auto& [what, with] : kEscapes) text = replaced(text, what, with);
  return text;
}

std::string report_page(const Json& document) {
  std::string script = page_file("charts.js") + page_file("figure.js") + page_file("report.js");
  const std::string style = page_file("style.css"), html = page_file("page.html");
  const std::string policy =
      fmt::format("default-src 'none'; script-src {}; style-src {}; base-uri 'none'; form-action 'none'",
                  policy_hash(script), policy_hash(style));
  // In the order of the page; each place is looked for after the one before, so that nothing in the data is
  // taken for a place.
  const std::array<std::pair<std::string_view, std::string>, 5> kPlaces = {
      {{"{{policy}}", policy},
       {"{{title}}", escape_html(document["title"].get<std::string>())},
       {"{{style}}", style},
       {"{{document}}", json_for_html(document)},
       {"{{script}}", std::move(script)}}};
  std::string page;
  std::string_view rest = html;
  for (const auto& [place, content] : kPlaces) {
    const std::size_t at = rest.find(place);
    DDL_CHECK(at != std::string_view::npos, "page.html has no {}", place);
    page += rest.substr(0, at);
    page += content;
    rest.remove_prefix(at + place.size());
  }
  page += rest;
  return page;
}

}  // namespace ddl
