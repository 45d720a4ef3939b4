// The files of src/serve/page, in the program. Written by cmake/embed_files.cmake.
#pragma once

#include <span>

#include "core/embedded_file.h"

namespace ddl {

extern const std::span<const EmbeddedFile> kServePageFiles;

}  // namespace ddl
