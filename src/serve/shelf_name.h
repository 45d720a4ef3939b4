// The names of what lies below a watched folder.
#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <string>

namespace ddl {

// Puts `value` among `named` by the path of `folder` from `base` (the base itself by its own name), with a number behind
// it where something else has that name. Both are absolute.
inline void name_below(const std::filesystem::path& base, const std::filesystem::path& folder,
                       const std::string& value, std::map<std::string, std::string>& named) {
  const std::filesystem::path path = folder.lexically_normal();
  std::filesystem::path name = path.lexically_relative(base.lexically_normal());
  if (name.empty() || name == ".")
    name = path.has_filename() ? path.filename() : path.parent_path().filename();
  std::string free = name.string();
  for (int i = 2; named.contains(free) && named[free] != value; ++i)
    free = fmt::format("{} ({})", name.string(), i);
  named[free] = value;
}

}  // namespace ddl
