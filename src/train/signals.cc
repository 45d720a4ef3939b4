#include "train/signals.h"

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <string_view>

namespace ddl {
namespace {

volatile std::sig_atomic_t received_signal = 0;
struct sigaction old_interrupt, old_terminate;

// A step can take minutes, and a program that says nothing seems to hang. On a terminal it begins with a new
// line: the cursor stands behind the live one.
constexpr std::string_view kNotice = "\nfinishing this step, then saving; Ctrl-C again stops at once\n";
std::string_view notice;

extern "C" void on_stop_signal(int number) {
  if (received_signal != 0) ::_exit(128 + number);
  received_signal = number;
  const int interrupted_errno = errno;
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, notice.data(), notice.size());
  errno = interrupted_errno;
}

}  // namespace

StopSignals::StopSignals() {
  received_signal = 0;
  notice = kNotice.substr(::isatty(STDERR_FILENO) ? 0 : 1);
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
