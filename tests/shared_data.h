// Tests that need published files which are not part of the repository (GPT-2's vocabulary, evaluation sets). They look in
// $DDL_SHARED/data, or in shared/data next to the repository. Where the files are not there, there is no such test: what it
// checks is checked on smaller files, made by other tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <string>

namespace ddl {

inline std::filesystem::path shared_data(const std::string& name) {
  const char* set = std::getenv("DDL_SHARED");
  return std::filesystem::path(set ? set : DDL_SOURCE_DIR "/../shared") / "data" / name;
}

inline bool shared_data_has(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (!std::filesystem::exists(shared_data(name))) return false;
  return true;
}

template <class Body>
bool register_test(const char* suite, const char* name, const char* file, int line) {
  ::testing::RegisterTest(suite, name, nullptr, nullptr, file, line,
                          []() -> ::testing::Test* { return new Body; });
  return true;
}

// Like TEST(suite, name), where all the named files and folders are there.
#define DDL_TEST_WITH_SHARED(suite, name, ...)                                        \
  class suite##_##name##_Body : public ::testing::Test {                              \
    void TestBody() override;                                                         \
  };                                                                                  \
  [[maybe_unused]] const bool suite##_##name##_registered =                           \
      ::ddl::shared_data_has({__VA_ARGS__}) &&                                        \
      ::ddl::register_test<suite##_##name##_Body>(#suite, #name, __FILE__, __LINE__); \
  void suite##_##name##_Body::TestBody()

}  // namespace ddl
