// Shared by the evaluation tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace ddl::testing {

// The folder of data that is not part of the repository: $DDL_SHARED, or `shared` beside the repository.
inline std::filesystem::path shared_data(const std::string& name) {
  const char* set = std::getenv("DDL_SHARED");
  return std::filesystem::path(set ? set : DDL_SOURCE_DIR "/../shared") / "data" / name;
}

#define DDL_NEEDS_SHARED(name)                                     \
  if (!std::filesystem::exists(::ddl::testing::shared_data(name))) \
  GTEST_SKIP() << "needs " << ::ddl::testing::shared_data(name) << " (set DDL_SHARED)"

}  // namespace ddl::testing
