// The Python files of src/infer/transformers, in the program. Written by cmake/embed_python.cmake.
#pragma once

#include <string_view>

namespace ddl::transformers_files {

extern const std::string_view kModeling, kConfiguration;

}  // namespace ddl::transformers_files
