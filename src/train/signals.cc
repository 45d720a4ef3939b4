#include "train/signals.h"

#include <unistd.h>

#include <csignal>

namespace ddl {
namespace {

volatile std::sig_atomic_t received_signal = 0;
struct sigaction old_interrupt, old_terminate;

extern "C" void on_stop_signal(int number) {
  if (received_signal != 0) ::_exit(128 + number);
  received_signal = number;
}

}  // namespace

StopSignals::StopSignals() {
  received_signal = 0;
  struct sigaction action {};
  action.sa_handler = on_stop_signal;
  action.sa_flags = SA_RESTART;  // writes under way go on
  ::sigaction(SIGINT, &action, &old_interrupt);
  ::sigaction(SIGTERM, &action, &old_terminate);
}

StopSignals::~StopSignals() {
  ::sigaction(SIGINT, &old_interrupt, nullptr);
  ::sigaction(SIGTERM, &old_terminate, nullptr);
}

int StopSignals::received() const { return received_signal; }

}  // namespace ddl
