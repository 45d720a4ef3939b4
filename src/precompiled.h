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
#include <nlohmann/json.hpp>
#include <string>
#include <vector>
