// The program as a user starts it, in a shell and a folder of its own. What hangs is killed with everything it started.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <string>

#include "child_process.h"
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
    const int code = run_shell(script);
    return {std::max(code, -1), contents_of(folder_ / "out"), contents_of(folder_ / "err")};
  }
  void run_well(const std::string& command) const {
    const Result result = run(command);
    ASSERT_EQ(result.code, 0) << command << "\n" << result.err;
  }

  TestFolder folder_;

 private:
  // Its exit code, or minus the signal. A process group of its own can be killed whole.
  static int run_shell(const std::string& script) {
    ChildProcess shell({"/bin/sh", "-c", script}, [] { ::setpgid(0, 0); });
    ::setpgid(shell.pid(), shell.pid());  // whoever is first
    if (!shell.ends_within(std::chrono::minutes(5))) ADD_FAILURE() << "does not end: " << script;
    ::kill(-shell.pid(), SIGKILL);  // what it left running, if anything
    return shell.wait();
  }
};

}  // namespace ddl
