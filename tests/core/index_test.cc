// Sizes that lose nothing.
#include "core/index.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace ddl {
namespace {

TEST(IndexDeathTest, LosingInformationAborts) {
  EXPECT_EQ(div_exact(12, 4), 3);
  EXPECT_DEATH(div_exact(65536, 12), "65536 is not a multiple of 12");
  EXPECT_DEATH(narrow<std::int32_t>(Index{1} << 40), "does not fit");
  EXPECT_DEATH(narrow<std::uint32_t>(Index{-1}), "does not fit");
}

}  // namespace
}  // namespace ddl
