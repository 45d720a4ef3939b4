// A program as a process of its own, which a test starts, watches and kills. It does not outlive this object.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace ddl {

class ChildProcess {
 public:
  // words: the path of the program and its arguments. `prepare` runs in the child before the program takes its place:
  // it says where output goes, sets limits and the environment, and may start a process group.
  template <class Prepare>
  ChildProcess(std::vector<std::string> words, const Prepare& prepare) {
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ < 0) throw std::runtime_error("fork");
    if (pid_ == 0) {
      prepare();
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
  }
  ~ChildProcess() {
    if (!running()) return;
    signal(SIGKILL);
    wait();
  }
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const { ::kill(pid_, number); }
  bool running() {
    if (!done_ && ::waitpid(pid_, &status_, WNOHANG) == pid_) done_ = true;
    return !done_;
  }
  // Whether it ends by itself in this time; returns as soon as it does.
  bool ends_within(std::chrono::microseconds time) {
    const auto begin = std::chrono::steady_clock::now();
    while (running()) {
      if (std::chrono::steady_clock::now() - begin >= time) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(500));
    }
    return true;
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

}  // namespace ddl
