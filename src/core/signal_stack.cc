#include "core/signal_stack.h"

#include <csignal>

#include "core/error.h"

namespace ddl {

namespace {
constexpr std::size_t kBytes = std::size_t{64} << 10;  // a frame with all vector registers takes 3 to 12 KiB
}

SignalStack::SignalStack() {
  stack_t now{};
  if (::sigaltstack(nullptr, &now) == 0 && (now.ss_flags & SS_DISABLE) == 0) return;
  memory_.reset(new std::byte[kBytes]);
  stack_t own{};
  own.ss_sp = memory_.get(), own.ss_size = kBytes;
  const int failed = ::sigaltstack(&own, nullptr);
  DDL_CHECK(failed == 0, "sigaltstack with {} bytes", kBytes);
}

SignalStack::~SignalStack() {
  if (!memory_) return;
  stack_t now{};
  // Somebody put another in its place
  if (::sigaltstack(nullptr, &now) != 0 || now.ss_sp != memory_.get()) return;
  stack_t none{};
  none.ss_flags = SS_DISABLE;
  ::sigaltstack(&none, nullptr);
}

}  // namespace ddl
