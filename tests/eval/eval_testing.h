// Shared by the evaluation tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "eval/task.h"

namespace ddl {

// The folder of data that is not part of the repository: $DDL_SHARED, or `shared` next to the repository.
inline std::filesystem::path shared_data(const std::string& name) {
  const char* set = std::getenv("DDL_SHARED");
  return std::filesystem::path(set ? set : DDL_SOURCE_DIR "/../shared") / "data" / name;
}

#define DDL_NEEDS_SHARED(name)                            \
  if (!std::filesystem::exists(::ddl::shared_data(name))) \
  GTEST_SKIP() << "needs " << ::ddl::shared_data(name) << " (set DDL_SHARED)"

inline const Task& builtin(const std::string& name) {
  for (const Task& task : builtin_tasks())
    if (task.name == name) return task;
  throw std::runtime_error("no task " + name);
}

inline std::string utf8(std::uint32_t code) {
  const auto tail = [&](int shift) { return static_cast<char>(0x80 | (code >> shift & 0x3f)); };
  if (code < 0x80) return {static_cast<char>(code)};
  if (code < 0x800) return {static_cast<char>(0xc0 | code >> 6), tail(0)};
  if (code < 0x10000) return {static_cast<char>(0xe0 | code >> 12), tail(6), tail(0)};
  return {static_cast<char>(0xf0 | code >> 18), tail(12), tail(6), tail(0)};
}

}  // namespace ddl
