// What the attacks share: the program as a process of its own, a folder for its files, a clock that ends them.
#pragma once

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "child_process.h"

namespace sabotage {

using Clock = std::chrono::steady_clock;
using Command = std::vector<std::string>;

inline std::string contents_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

inline void write(const std::string& path, std::string_view contents) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << contents;
}

inline std::string as_line(const Command& command) {
  std::string line = "ddl";
  for (const std::string& word : command) line += " " + word;
  return line;
}

struct Ending {
  enum class How { kCode, kSignal, kHang } how = How::kCode;
  int number = 0;  // the exit code or the signal
  bool well() const { return how == How::kCode && number == 0; }
  std::string text() const {
    if (how == How::kHang) return "did not end";
    return (how == How::kCode ? "exit " : "signal ") + std::to_string(number);
  }
};

class Program {
 public:
  explicit Program(std::string path) : path_(std::move(path)) {}

  // Runs a command in `folder`; what it prints goes to `folder`/printed. Killed after `kill_after`; one that has
  // no such time, and runs for two minutes, hangs.
  Ending run(const std::string& folder, const Command& command,
             std::chrono::microseconds kill_after = std::chrono::microseconds::max()) const {
    const std::string printed = folder + "/printed";
    std::vector<std::string> words = command;
    words.insert(words.begin(), path_);
    ddl::ChildProcess child(words, [&] {
      const int out = ::open(printed.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666),
                in = ::open("/dev/null", O_RDONLY);
      ::dup2(in, 0);
      ::dup2(out, 1);
      ::dup2(out, 2);
      ::setenv("DDL_THREADS", "1", 1);
      ::setenv("OMP_WAIT_POLICY", "passive", 1);
      // A damaged size must not take the machine's memory.
      const rlimit memory{rlim_t{8} << 30, rlim_t{8} << 30}, core{0, 0};
      ::setrlimit(RLIMIT_AS, &memory);
      ::setrlimit(RLIMIT_CORE, &core);
      if (::chdir(folder.c_str()) != 0) ::_exit(127);
    });
    constexpr std::chrono::minutes kHang(2);
    const bool planned = kill_after != std::chrono::microseconds::max();
    if (!child.ends_within(planned ? kill_after : kHang)) {
      child.signal(SIGKILL);
      if (!planned) return {Ending::How::kHang, 0};
    }
    const int code = child.wait();
    return code >= 0 ? Ending{Ending::How::kCode, code} : Ending{Ending::How::kSignal, -code};
  }

  void run_well(const std::string& folder, const Command& command) const {
    if (const Ending ending = run(folder, command); !ending.well())
      throw std::runtime_error(as_line(command) + ": " + ending.text() + "\n" +
                               contents_of(folder + "/printed"));
  }

 private:
  std::string path_;
};

// In memory where there is such a place; removed at the end.
class Folder {
 public:
  Folder() {
    std::string pattern =
        std::string(::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp") + "/sabotage_XXXXXX";
    if (!::mkdtemp(pattern.data())) throw std::runtime_error("mkdtemp " + pattern);
    path_ = pattern;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// A model that trains in a moment.
inline Command train_command(const std::string& data, const std::string& out,
                             const std::vector<std::string>& sets) {
  Command command = {"train", "--data", data, "--out", out};
  std::vector<std::string> all = {
      "model.layers=1", "model.width=16", "model.heads=2",       "model.context=24", "train.batch=2",
      "train.warmup=2", "eval.windows=2", "model.precision=f32", "log.floor=false",  "log.gates_every=0"};
  all.insert(all.end(), sets.begin(), sets.end());
  for (const std::string& set : all) command.insert(command.end(), {"--set", set});
  return command;
}

// A study of a dozen such models, on the dataset "set".
inline constexpr const char* kStudy = R"(title = "small"
data = "set"
settings = ["model.layers=1", "model.width=16", "model.heads=1", "model.context=48", "train.batch=2",
            "train.warmup=1", "train.schedule=cooldown", "eval.windows=4", "model.precision=f32"]
rates = [0.004, 0.016, 0.064]
tuning_seeds = [1]
[[look]]
pairs = 2
p = 0.01
[[size]]
name = "XS"
tokens = [480, 960]
arms = ["ddl-cc", "baseline"]
[[question]]
ask = "Is it better?"
arm = "ddl-cc"
against = "baseline"
)";
inline Command study_command(const std::string& out) {
  return {"study", "study.toml", "--out", out, "--worker"};
}

struct Arguments {
  std::string program;
  double seconds = 20;
  std::uint64_t seed = 1;

  // PROGRAM [SECONDS [SEED]]
  static Arguments parse(int argc, char** argv) {
    if (argc < 2) {
      std::fprintf(stderr, "usage: %s PROGRAM [SECONDS [SEED]]\n", argv[0]);
      std::exit(2);
    }
    Arguments a;
    a.program = std::filesystem::absolute(argv[1]).string();
    if (argc > 2) a.seconds = std::atof(argv[2]);
    if (argc > 3) a.seed = std::strtoull(argv[3], nullptr, 10);
    return a;
  }
};

}  // namespace sabotage
