#include "core/weight_format.h"

#include "core/error.h"

namespace ddl {

std::vector<std::string> weight_format_names() {
  std::vector<std::string> names;
  for (const WeightFormatInfo& format : kWeightFormats) names.emplace_back(format.name);
  return names;
}

WeightFormat parse_weight_format(std::string_view name) {
  for (const WeightFormatInfo& format : kWeightFormats)
    if (name == format.name) return format.format;
  throw UserError("no weight format '{}'; there are {}", name, fmt::join(weight_format_names(), ", "));
}

}  // namespace ddl
