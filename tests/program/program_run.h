// The program as a user starts it, in a shell and a folder of its own. What hangs is killed with everything it started.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <string>
#include <thread>

#include "test_folder.h"

namespace ddl {

class ProgramRun : public ::testing::Test {
 protected:
  struct Result {
    int code;  // minus one where a signal ended it
    std::string out, err;
  };
  // "ddl" is the program; the folder is the test's.
  Result run(const std::string& command) const {
    const std::string script = "cd " + folder_.path() +
                               " && export DDL_THREADS=1; ddl() { " DDL_PROGRAM " \"$@\"; }; ( " + command +
                               " ) > out 2> err < /dev/null";
    const int status = run_shell(script);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, contents_of(folder_ / "out"),
            contents_of(folder_ / "err")};
  }
  void run_well(const std::string& command) const {
    const Result result = run(command);
    ASSERT_EQ(result.code, 0) << command << "\n" << result.err;
  }

  TestFolder folder_;

 private:
  // Its status, as waitpid gives it. A process group of its own can be killed whole.
  static int run_shell(const std::string& script) {
    constexpr std::chrono::minutes kHang(5);
    const auto begin = std::chrono::steady_clock::now();
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::setpgid(0, 0);
      ::execl("/bin/sh", "sh", "-c", script.c_str(), static_cast<char*>(nullptr));
      ::_exit(127);
    }
    ::setpgid(pid, pid);  // whoever is first
    int status = 0;
    while (::waitpid(pid, &status, WNOHANG) != pid) {
      if (std::chrono::steady_clock::now() - begin > kHang) {
        ADD_FAILURE() << "does not end: " << script;
        ::kill(-pid, SIGKILL);
        ::waitpid(pid, &status, 0);
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ::kill(-pid, SIGKILL);  // what it left running, if anything
    return status;
  }
};

}  // namespace ddl
