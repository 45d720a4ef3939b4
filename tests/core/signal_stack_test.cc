#include "core/signal_stack.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <thread>

namespace ddl {
namespace {

stack_t stack_of_this_thread() {
  stack_t now{};
  EXPECT_EQ(::sigaltstack(nullptr, &now), 0);
  return now;
}

bool is_there(const stack_t& stack) { return (stack.ss_flags & SS_DISABLE) == 0; }

volatile bool ran_on_it = false;
void note_where(int) { ran_on_it = (stack_of_this_thread().ss_flags & SS_ONSTACK) != 0; }

// A thread of its own: sanitizers give every thread such a stack, the main thread's may be the test program's.
template <class F>
void without_a_stack(const F& body) {
  std::thread([&] {
    const stack_t before = stack_of_this_thread();
    stack_t none{};
    none.ss_flags = SS_DISABLE;
    ASSERT_EQ(::sigaltstack(&none, nullptr), 0);
    body();
    if (is_there(before)) ::sigaltstack(&before, nullptr);
  }).join();
}

TEST(SignalStack, IsThereWhileItLives) {
  without_a_stack([] {
    {
      const SignalStack stack;
      ASSERT_TRUE(is_there(stack_of_this_thread()));
      EXPECT_GT(stack_of_this_thread().ss_size, static_cast<std::size_t>(2 * ::sysconf(_SC_MINSIGSTKSZ)));
      struct sigaction action {
      }, before{};
      action.sa_handler = note_where, action.sa_flags = SA_ONSTACK;
      ASSERT_EQ(::sigaction(SIGUSR1, &action, &before), 0);
      ASSERT_EQ(::raise(SIGUSR1), 0);
      ::sigaction(SIGUSR1, &before, nullptr);
      EXPECT_TRUE(ran_on_it);
    }
    EXPECT_FALSE(is_there(stack_of_this_thread()));
  });
}

TEST(SignalStack, AThreadThatHasOneKeepsIt) {
  without_a_stack([] {
    const SignalStack outer;
    const void* const there = stack_of_this_thread().ss_sp;
    {
      const SignalStack inner;
      EXPECT_EQ(stack_of_this_thread().ss_sp, there);
    }
    EXPECT_TRUE(is_there(stack_of_this_thread()));
    EXPECT_EQ(stack_of_this_thread().ss_sp, there);
  });
}

// As Python's faulthandler does when it is switched on in a callback.
TEST(SignalStack, WhatSomebodyElsePutThereStays) {
  alignas(16) static std::array<std::byte, 1 << 16> theirs;
  without_a_stack([] {
    {
      const SignalStack stack;
      stack_t other{};
      other.ss_sp = theirs.data(), other.ss_size = theirs.size();
      ASSERT_EQ(::sigaltstack(&other, nullptr), 0);
    }
    EXPECT_EQ(stack_of_this_thread().ss_sp, theirs.data());
  });
}

}  // namespace
}  // namespace ddl
