#include "train/signals.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

namespace ddl {
namespace {

// Where a signal's frame goes must not depend on what it interrupts: generated products run with the stack's register
// somewhere on the heap.
TEST(StopSignals, TheHandlerHasAStackOfItsOwn) {
  stack_t before{}, now{};
  ASSERT_EQ(::sigaltstack(nullptr, &before), 0);
  {
    const StopSignals signals;
    ASSERT_EQ(::sigaltstack(nullptr, &now), 0);
    EXPECT_EQ(now.ss_flags & SS_DISABLE, 0);
    EXPECT_GT(now.ss_size,
              static_cast<std::size_t>(2 * ::sysconf(_SC_MINSIGSTKSZ)));  // with all vector registers
    for (const int number : {SIGINT, SIGTERM}) {
      struct sigaction action {};
      ASSERT_EQ(::sigaction(number, nullptr, &action), 0);
      EXPECT_NE(action.sa_flags & SA_ONSTACK, 0) << number;
    }
    ASSERT_EQ(::raise(SIGTERM), 0);
    EXPECT_EQ(signals.received(), SIGTERM);
  }
  ASSERT_EQ(::sigaltstack(nullptr, &now), 0);
  EXPECT_EQ(now.ss_flags, before.ss_flags);
}

}  // namespace
}  // namespace ddl
