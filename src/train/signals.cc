#include "train/signals.h"

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <iterator>
#include <string_view>

namespace ddl {
namespace {

volatile std::sig_atomic_t received_signal = 0;
constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};  // SIGHUP: the terminal was closed
struct sigaction old_actions[std::size(kSignals)], old_pipe_action;

// A micro-batch can take a while, and a program that says nothing seems to hang. On a terminal it begins with a new
// line: the cursor stands behind the live one.
constexpr std::string_view kNotice =
    "\nfinishing this micro-batch, then saving the last whole step; a second Ctrl-C stops at once\n";
constexpr std::string_view kNoticeOfRanks =
    "\nfinishing this step, then saving; a second Ctrl-C stops at once\n";
std::string_view notice;

extern "C" void on_stop_signal(int number) {
  if (received_signal != 0) {
    // A closing terminal sends it more than once: by the shell, and by the system
    if (number == SIGHUP) return;
    ::_exit(128 + number);
  }
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
  action.sa_flags = SA_RESTART | SA_ONSTACK;  // writes under way continue; core/signal_stack.h
  for (std::size_t i = 0; i < std::size(kSignals); ++i) {
    ::sigaction(kSignals[i], &action, &old_actions[i]);
    const bool nohup = kSignals[i] == SIGHUP && old_actions[i].sa_handler == SIG_IGN;
    if (nohup) ::sigaction(SIGHUP, &old_actions[i], nullptr);
  }
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignore, &old_pipe_action);  // writing fails instead, which the writer sees
}

StopSignals::~StopSignals() {
  for (std::size_t i = 0; i < std::size(kSignals); ++i) ::sigaction(kSignals[i], &old_actions[i], nullptr);
  ::sigaction(SIGPIPE, &old_pipe_action, nullptr);
}

void StopSignals::stop_with_ranks(bool says_so) {
  notice = says_so ? kNoticeOfRanks.substr(::isatty(STDERR_FILENO) ? 0 : 1) : std::string_view();
}

int StopSignals::received() const { return received_signal; }

}  // namespace ddl
