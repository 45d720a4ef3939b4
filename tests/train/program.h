// The program itself, as a process of its own.
#pragma once

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "child_process.h"

namespace ddl {

// What it prints, and its errors, go to the open file `output`, or nowhere.
class Program : public ChildProcess {
 public:
  explicit Program(std::vector<std::string> arguments, int output = -1)
      : ChildProcess(with_path(std::move(arguments)), [output] {
          const int to = output < 0 ? ::open("/dev/null", O_WRONLY) : output;
          ::dup2(to, 1);
          ::dup2(to, 2);
          ::setenv("DDL_THREADS", "1", 1);
        }) {}

 private:
  static std::vector<std::string> with_path(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), DDL_PROGRAM);
    return arguments;
  }
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
