// A document as one HTML page that needs nothing else: style, scripts and data are in it.
#pragma once

#include <string>
#include <string_view>

#include "core/json.h"

namespace ddl {

// The page of a document (document.h). Its policy forbids every request and every script but its own.
std::string report_page(const Json& document);

// JSON as it may stand inside a <script> element: nothing in it ends the element or begins a comment.
std::string json_for_html(const Json& json);
std::string escape_html(std::string_view text);

}  // namespace ddl
