// Heavy headers that most files need, compiled once per group of libraries (src/CMakeLists.txt). Files still
// include what they use: the build does not depend on this one.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

// The literal ""_json, which nobody here writes, parses: its body would make every file that reads this header instantiate
// a second JSON class with its parser, half a second each. Now it is declared, and its body belongs to a template.
#define _json(...)                 \
  _json(const char*, std::size_t); \
  template <class Size>            \
  nlohmann::json literal_that_is_not_used(const char* s, Size n)
#include <nlohmann/json.hpp>
#undef _json
