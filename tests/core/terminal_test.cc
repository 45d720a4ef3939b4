// Colour only where it is wanted.
#include "core/terminal.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

namespace ddl {
namespace {

// A terminal, as a stream.
class Terminal : public ::testing::Test {
 protected:
  void SetUp() override {
    ::setenv("TERM", "xterm", 1);
    ::unsetenv("NO_COLOR");
    screen_ = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (screen_ < 0 || ::grantpt(screen_) != 0 || ::unlockpt(screen_) != 0) GTEST_SKIP() << "no terminal";
    stream_ = ::fopen(::ptsname(screen_), "re+");
    ASSERT_NE(stream_, nullptr);
  }
  void TearDown() override {
    if (stream_) std::fclose(stream_);
    if (screen_ >= 0) ::close(screen_);
  }
  int screen_ = -1;
  std::FILE* stream_ = nullptr;
};

TEST_F(Terminal, HasColour) { EXPECT_EQ(painted("yes", Colour::kGood, stream_), "\033[32myes\033[0m"); }

TEST_F(Terminal, NoColorForbidsIt) {
  ::setenv("NO_COLOR", "1", 1);
  EXPECT_EQ(painted("yes", Colour::kGood, stream_), "yes");
  ::setenv("NO_COLOR", "", 1);  // empty means not set (no-color.org)
  EXPECT_NE(painted("yes", Colour::kGood, stream_), "yes");
  ::setenv("TERM", "dumb", 1);
  EXPECT_EQ(painted("yes", Colour::kGood, stream_), "yes");
}

TEST_F(Terminal, AFileHasNone) {
  std::FILE* const file = std::tmpfile();
  EXPECT_EQ(painted("yes", Colour::kBad, file), "yes");
  std::fclose(file);
}

}  // namespace
}  // namespace ddl
