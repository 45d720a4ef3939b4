#include "data/progress_line.h"

#include <gtest/gtest.h>

#include <cmath>

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

TEST(ProgressLine, ANarrowTerminalLosesTheLeastNeededFirst) {
  const ProgressLine line("prepare", Unit::kBytes, 200'000'000, nullptr);
  const auto text = [&](std::size_t columns) { return line.text(50'000'000, 2.5, "1.00M tokens", columns); };
  EXPECT_EQ(text(67), "prepare:  25%, 50.0 of 200.0 MB, 20.0 MB/s, 0:08 left, 1.00M tokens");
  EXPECT_EQ(text(66), "prepare:  25%, 50.0 of 200.0 MB, 0:08 left, 1.00M tokens");
  EXPECT_EQ(text(50), "prepare:  25%, 50.0 of 200.0 MB, 0:08 left");
  EXPECT_EQ(text(40), "prepare:  25%, 50.0 of 200.0 MB");
  EXPECT_EQ(text(12), "prepare:  25");
  EXPECT_EQ(fit_line({{"a\u00e9b", 0}}, " ", 2), "a");  // never half a character
}

TEST(FormatSeconds, TakesAnything) {
  EXPECT_EQ(format_seconds(65.4), "1:05");
  EXPECT_EQ(format_seconds(8000), "2:13:20");
  EXPECT_EQ(format_seconds(-1), "0:00");
  EXPECT_EQ(format_seconds(std::nan("")), "0:00");
  EXPECT_EQ(format_seconds(1e300), "277777:46:40");
}

}  // namespace
}  // namespace ddl
