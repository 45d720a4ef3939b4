// Who may ask: what is refused before anything is looked at. A page of another site that makes a visitor's browser
// ask this server comes with a foreign Host (its name points here), a foreign Origin or a foreign Sec-Fetch-Site, and
// never with JSON.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serve/http.h"

namespace ddl {

struct AccessOptions {
  std::string api_key;                   // "": none is asked for
  std::vector<std::string> allow_hosts;  // besides localhost, 127.0.0.1 and [::1]
};

// What refuses the request, from its headers alone; nothing where it may pass:
//   403 foreign Host or site    401 no key or another    415 a POST of something else than JSON
std::optional<HttpResponse> refuse(const HttpRequest& request, const AccessOptions& options);

// {"error": {"message", "type", "param", "code"}} as OpenAI's clients expect it. "" is null.
HttpResponse error_response(int status, const std::string& message, const std::string& param = "",
                            const std::string& code = "");

// Takes as long for every `given` of one length: where they differ cannot be measured.
bool same_key(std::string_view given, std::string_view expected);

}  // namespace ddl
