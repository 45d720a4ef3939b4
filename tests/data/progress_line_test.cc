#include "data/progress_line.h"

#include <gtest/gtest.h>

namespace ddl {
namespace {

using Unit = ProgressLine::Unit;

TEST(ProgressLine, SaysHowFarHowFastAndHowLong) {
  EXPECT_EQ(ProgressLine("prepare", Unit::kBytes, 200'000'000, nullptr).text(50'000'000, 2.5, "1.00M tokens"),
            "prepare:  25%, 50.0 of 200.0 MB, 20.0 MB/s, 0:08 left, 1.00M tokens");
  EXPECT_EQ(ProgressLine("prepare", Unit::kBytes, 0, nullptr).text(50'000'000, 2.5, ""),
            "prepare: 50.0 MB, 20.0 MB/s");
  EXPECT_EQ(ProgressLine("merging", Unit::kTokens, 8192, nullptr).text(2048, 2000, ""),
            "merging:  25%, 2048 of 8192 tokens, 1 tokens/s, 1:40:00 left");
  // At the very start there is no rate to divide by.
  EXPECT_EQ(ProgressLine("prepare", Unit::kBytes, 1'000'000, nullptr).text(0, 0, ""),
            "prepare:   0%, 0.0 of 1.0 MB, 0.0 MB/s");
}

}  // namespace
}  // namespace ddl
