// The program itself, as a process of its own.
#pragma once

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

namespace ddl {

class Program {
 public:
  // What it prints, and its errors, go to the open file `output`, or nowhere.
  explicit Program(std::vector<std::string> arguments, int output = -1) {
    arguments.insert(arguments.begin(), DDL_PROGRAM);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) {
      if (output < 0) output = ::open("/dev/null", O_WRONLY);
      ::dup2(output, 1);
      ::dup2(output, 2);
      ::setenv("DDL_THREADS", "1", 1);
      ::execv(DDL_PROGRAM, argv.data());
      ::_exit(127);
    }
  }
  ~Program() {  // a test that failed in between must not leave it running
    if (!running()) return;
    signal(SIGKILL);
    wait();
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void signal(int number) const { ::kill(pid_, number); }
  bool running() {
    if (!done_ && ::waitpid(pid_, &status_, WNOHANG) == pid_) done_ = true;
    return !done_;
  }
  int wait() {  // the exit code, or minus the signal
    if (!done_) ::waitpid(pid_, &status_, 0);
    done_ = true;
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : -WTERMSIG(status_);
  }

 private:
  pid_t pid_ = -1;
  int status_ = 0;
  bool done_ = false;
};

// All that the program prints on a terminal of so many columns.
inline std::string shown_on_terminal(const std::vector<std::string>& arguments, unsigned short columns) {
  const int screen = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (screen < 0 || ::grantpt(screen) != 0 || ::unlockpt(screen) != 0) return "no terminal";
  const winsize size{24, columns, 0, 0};
  ::ioctl(screen, TIOCSWINSZ, &size);
  const int terminal = ::open(::ptsname(screen), O_RDWR | O_NOCTTY | O_CLOEXEC);
  Program program(arguments, terminal);
  ::close(terminal);
  std::string text;
  char buffer[4096];
  // Reading fails once the program, which holds the other end, is gone.
  for (ssize_t count; (count = ::read(screen, buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(count));
  ::close(screen);
  program.wait();
  return text;
}

}  // namespace ddl
