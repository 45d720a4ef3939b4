// Ranks that this program starts of itself.
#include "cli/local_ranks.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

namespace ddl {
namespace {

constexpr const char* kAskedFor = "DDL_TEST_RANK";
constexpr int kIgnoresHangup = 10, kEndsAtHangup = 11;

// Started again as a rank, this program ends before any test, and its exit code says what a closed terminal would do.
const bool is_no_rank = [] {
  if (!std::getenv(kAskedFor)) return true;
  struct sigaction now {};
  ::sigaction(SIGHUP, nullptr, &now);
  ::_exit(now.sa_handler == SIG_IGN ? kIgnoresHangup : kEndsAtHangup);
}();

int code_of_ranks(decltype(SIG_IGN) hangup) {
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGHUP, hangup);
    ::setenv(kAskedFor, "1", 1);
    ::_exit(run_local_ranks(2, 1));
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST(LocalRanks, UnderNohupIgnoreAClosedTerminal) {
  ASSERT_TRUE(is_no_rank);
  EXPECT_EQ(code_of_ranks(SIG_IGN), kIgnoresHangup);
  EXPECT_EQ(code_of_ranks(SIG_DFL), kEndsAtHangup);
}

}  // namespace
}  // namespace ddl
