// A line that says how far a long job is, how fast, and how long it will take; on a terminal it is rewritten
// in place, elsewhere a plain line appears now and then.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

namespace ddl {

class Progress {
 public:
  // `total_bytes` 0: unknown. `stream` null: silent.
  Progress(std::string what, std::uint64_t total_bytes, std::FILE* stream);
  ~Progress() { finish(); }
  void update(std::uint64_t done_bytes, const std::string& note);
  void finish();  // leaves the last state on the terminal

 private:
  using Clock = std::chrono::steady_clock;
  std::string what_;
  std::uint64_t total_bytes_;
  std::FILE* stream_;
  bool terminal_ = false, shown_ = false;
  Clock::time_point start_, last_;
};

// "1:05", "2:13:20"
std::string format_seconds(double seconds);

}  // namespace ddl
