// A TOML text as JSON: tables become objects. For files whose keys are not known beforehand; a configuration
// goes through core/options.h.
#pragma once

#include <string>
#include <string_view>

#include "core/record.h"

namespace ddl {

// Throws UserError("NAME:LINE: ...") where it is not valid TOML, or holds a date or time.
Json parse_toml(std::string_view text, const std::string& source_name);

}  // namespace ddl
