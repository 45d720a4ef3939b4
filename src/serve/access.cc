#include "serve/access.h"

#include <algorithm>
#include <cstddef>

#include "core/base64.h"
#include "core/error.h"
#include "core/json.h"

namespace ddl {
namespace {

// "localhost:8080" -> "localhost", "[::1]:80" -> "[::1]".
std::string host_name(std::string_view host) {
  const std::size_t bracket = host.find(']');
  const std::size_t colon = host.find(':', bracket == std::string_view::npos ? 0 : bracket);
  return lower_case(host.substr(0, colon));
}

bool host_allowed(std::string_view host, const AccessOptions& options) {
  const std::string name = host_name(host);
  if (name == "localhost" || name == "127.0.0.1" || name == "[::1]") return true;
  return std::any_of(options.allow_hosts.begin(), options.allow_hosts.end(),
                     [&](const std::string& allowed) { return host_name(allowed) == name; });
}

// A browser's page may ask only where it came from.
bool own_origin(std::string_view origin, std::string_view host) {
  for (const std::string_view scheme : {"http://", "https://"})
    if (origin.starts_with(scheme)) return lower_case(origin.substr(scheme.size())) == lower_case(host);
  return false;
}

// A browser says where a request comes from, also where it sends no Origin: an image, a script, a frame. Another site may
// do no more than link here.
bool from_own_page(const HttpRequest& request) {
  const std::string& site = request.header("sec-fetch-site");
  if (site.empty() || site == "same-origin" || site == "none") return true;
  return request.method == "GET" && request.header("sec-fetch-mode") == "navigate" &&
         request.header("sec-fetch-dest") == "document";
}

// "Bearer KEY" of programs; a browser asks for a password and sends "Basic base64(anything:KEY)".
bool has_key(const std::string& authorization, const std::string& key) {
  const std::size_t space = authorization.find(' ');
  if (space == std::string::npos) return false;
  const std::string scheme = lower_case(std::string_view(authorization).substr(0, space));
  std::string given = authorization.substr(space + 1);
  if (scheme == "basic") {
    const auto decoded = decode_base64(given);
    const std::size_t colon = decoded ? decoded->find(':') : std::string::npos;
    if (colon == std::string::npos) return false;
    given = decoded->substr(colon + 1);
  } else if (scheme != "bearer") {
    return false;
  }
  return same_key(given, key);
}

bool is_json(const std::string& content_type) {
  std::string type = lower_case(std::string_view(content_type).substr(0, content_type.find(';')));
  while (!type.empty() && type.back() == ' ') type.pop_back();
  return type == "application/json";
}

}  // namespace

bool same_key(std::string_view given, std::string_view expected) {
  unsigned difference = given.size() == expected.size() ? 0 : 1;
  for (std::size_t i = 0; i < given.size(); ++i)
    difference |= static_cast<unsigned char>(given[i]) ^
                  static_cast<unsigned char>(expected.empty() ? 0 : expected[i % expected.size()]);
  return difference == 0;
}

HttpResponse error_response(int status, const std::string& message, const std::string& param,
                            const std::string& code) {
  const char* type = status == 401   ? "authentication_error"
                     : status == 403 ? "permission_error"
                     : status == 429 ? "rate_limit_error"
                     : status >= 500 ? "server_error"
                                     : "invalid_request_error";
  Json error;
  error["message"] = message;
  error["type"] = type;
  error["param"] = param.empty() ? Json() : Json(param);
  error["code"] = code.empty() ? Json() : Json(code);
  HttpResponse response{.status = status, .body = to_line(Json{{"error", std::move(error)}})};
  if (status == 429 || status == 503) response.headers.emplace_back("Retry-After", "1");
  return response;
}

std::optional<HttpResponse> refuse(const HttpRequest& request, const AccessOptions& options) {
  const std::string& host = request.header("host");
  if (!host_allowed(host, options))
    return error_response(403,
                          fmt::format("this server does not answer to the name '{}'; start it with "
                                      "--allow-host NAME where it should",
                                      host.substr(0, 100)),
                          "", "foreign_host");
  const std::string& origin = request.header("origin");
  if ((!origin.empty() && !own_origin(origin, host)) || !from_own_page(request))
    return error_response(403, "pages of other sites may not use this server", "", "foreign_origin");
  if (!options.api_key.empty() && request.path != "/health" &&
      !has_key(request.header("authorization"), options.api_key)) {
    HttpResponse response =
        error_response(401, "an API key is needed: send 'Authorization: Bearer KEY'", "", "invalid_api_key");
    response.headers.emplace_back("WWW-Authenticate", "Basic realm=\"ddl\"");
    return response;
  }
  if (request.method == "POST" && !is_json(request.header("content-type")))
    return error_response(415, "expected the header 'Content-Type: application/json'", "",
                          "unsupported_media_type");
  return std::nullopt;
}

}  // namespace ddl
