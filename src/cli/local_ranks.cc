#include "cli/local_ranks.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "core/clock.h"
#include "core/error.h"
#include "io/file.h"

namespace ddl {
namespace {

constexpr double kGraceSeconds = 60;

int free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  const bool bound = socket >= 0 && ::bind(socket, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                     ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  const int error = errno;
  if (socket >= 0) ::close(socket);
  if (!bound) throw UserError("--ranks: there is no free port on this machine ({})", std::strerror(error));
  return ntohs(address.sin_port);
}

// This process's own arguments.
std::vector<std::string> own_arguments() {
  const std::string text = read_file("/proc/self/cmdline");
  std::vector<std::string> arguments;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\0', begin);
    arguments.push_back(text.substr(begin, end - begin));
    begin = end == std::string::npos ? text.size() : end + 1;
  }
  return arguments;
}

volatile std::sig_atomic_t signal_to_pass_on = 0;
extern "C" void note_signal(int number) { signal_to_pass_on = number; }

int exit_code(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

}  // namespace

int run_local_ranks(int ranks, int threads_each) {
  const std::string port = std::to_string(free_port());
  std::vector<std::string> arguments = own_arguments();
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);

  struct sigaction action {};
  action.sa_handler = note_signal;
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) ::sigaction(number, &action, nullptr);

  const pid_t parent = ::getpid();
  std::vector<pid_t> children;
  std::fflush(nullptr);
  for (int r = 0; r < ranks; ++r) {
    const pid_t child = ::fork();
    if (child < 0) {
      const int error = errno;
      for (const pid_t other : children) ::kill(other, SIGKILL);
      throw UserError("--ranks: rank {} cannot be started ({})", r, std::strerror(error));
    }
    if (child == 0) {
      // A group of their own: Ctrl-C comes to the parent, which passes it on once.
      ::setpgid(0, children.empty() ? 0 : children.front());
      ::prctl(PR_SET_PDEATHSIG, SIGTERM);
      if (::getppid() != parent) ::_exit(1);
      const std::string rank = std::to_string(r), all = std::to_string(ranks),
                        threads = std::to_string(threads_each);
      ::setenv("RANK", rank.c_str(), 1), ::setenv("LOCAL_RANK", rank.c_str(), 1);
      ::setenv("WORLD_SIZE", all.c_str(), 1), ::setenv("LOCAL_WORLD_SIZE", all.c_str(), 1);
      ::setenv("MASTER_ADDR", "127.0.0.1", 1), ::setenv("MASTER_PORT", port.c_str(), 1);
      ::setenv("DDL_THREADS", threads.c_str(), 0);
      ::execv("/proc/self/exe", argv.data());
      ::_exit(127);
    }
    ::setpgid(child, children.empty() ? child : children.front());
    children.push_back(child);
  }

  std::vector<int> codes(children.size(), -1);
  double failed_at = 0;
  int failed = 0;
  for (std::size_t left = children.size(); left > 0;) {
    for (std::size_t r = 0; r < children.size(); ++r) {
      int status = 0;
      if (codes[r] >= 0 || ::waitpid(children[r], &status, WNOHANG) != children[r]) continue;
      codes[r] = exit_code(status), --left;
      if (WIFSIGNALED(status)) fmt::print(stderr, "rank {} was ended by signal {}\n", r, WTERMSIG(status));
      if (codes[r] != 0 && failed == 0) failed = codes[r], failed_at = now();
    }
    const bool late = failed != 0 && now() - failed_at > kGraceSeconds;
    const int signal = late ? SIGKILL : static_cast<int>(signal_to_pass_on);
    signal_to_pass_on = 0;
    for (std::size_t r = 0; signal != 0 && r < children.size(); ++r)
      if (codes[r] < 0) ::kill(children[r], signal);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return codes.front() != 0 ? codes.front() : failed;
}

}  // namespace ddl
