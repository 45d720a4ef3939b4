#include "report/page.h"

#include <array>
#include <cstdint>
#include <utility>

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
  constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const std::string hex = sha256_hex(text);
  std::string base64;
  for (std::size_t byte = 0; byte < hex.size() / 2; byte += 3) {
    std::uint32_t bits = 0;
    std::size_t present = 0;
    for (std::size_t k = byte; k < byte + 3; ++k) {
      bits <<= 8;
      if (2 * k >= hex.size()) continue;
      bits |= hex_digit(hex[2 * k]) << 4 | hex_digit(hex[2 * k + 1]);
      ++present;
    }
    for (std::size_t letter = 0; letter < 4; ++letter)
      base64 += letter <= present ? kLetters[bits >> (18 - 6 * letter) & 63] : '=';
  }
  return "'sha256-" + base64 + "'";
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
  using namespace page_files;
  std::string script = std::string(kChartsJs) + std::string(kFigureJs) + std::string(kReportJs);
  const std::string policy =
      fmt::format("default-src 'none'; script-src {}; style-src {}; base-uri 'none'; form-action 'none'",
                  policy_hash(script), policy_hash(kStyleCss));
  // In the order of the page; each place is looked for after the one before, so that nothing in the data is
  // taken for a place.
  const std::array<std::pair<std::string_view, std::string>, 5> kPlaces = {
      {{"{{policy}}", policy},
       {"{{title}}", escape_html(document["title"].get<std::string>())},
       {"{{style}}", std::string(kStyleCss)},
       {"{{document}}", json_for_html(document)},
       {"{{script}}", std::move(script)}}};
  std::string page;
  std::string_view rest = kPageHtml;
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
