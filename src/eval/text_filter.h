// The named steps a template may apply to a column: {{support | lstrip}}.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ddl {

using TextFilter = std::string (*)(std::string_view);

// Throws UserError naming the nearest filter where there is none of this name. A filter throws UserError
// where it cannot do its work (a sentence without a blank).
TextFilter find_text_filter(std::string_view name);
std::vector<std::string> text_filter_names();

}  // namespace ddl
