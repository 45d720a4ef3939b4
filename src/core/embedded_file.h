// Files that are part of the program (cmake/embed_files.cmake).
#pragma once

#include <span>
#include <string_view>

namespace ddl {

struct EmbeddedFile {
  std::string_view name, content;
};

// Null where there is none of this name.
inline const EmbeddedFile* find_embedded(std::span<const EmbeddedFile> files, std::string_view name) {
  for (const EmbeddedFile& file : files)
    if (file.name == name) return &file;
  return nullptr;
}

}  // namespace ddl
