// A line that says how far a long job is, how fast, and how long it will take; on a terminal it is rewritten
// in place, elsewhere a plain line appears now and then.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

namespace ddl {

// The line itself: what it says is the caller's.
class ProgressLine {
 public:
  explicit ProgressLine(std::FILE* stream);  // null: silent
  ~ProgressLine() { finish(); }
  bool due();  // the last line is old enough; the caller shows another
  void show(const std::string& line);
  void finish();           // leaves the last state on the terminal
  double seconds() const;  // since the beginning

 private:
  using Clock = std::chrono::steady_clock;
  std::FILE* stream_;
  bool terminal_ = false, shown_ = false;
  Clock::time_point start_, last_;
};

// Bytes of a job on files.
class Progress {
 public:
  // `total_bytes` 0: unknown. `stream` null: silent.
  Progress(std::string what, std::uint64_t total_bytes, std::FILE* stream);
  void update(std::uint64_t done_bytes, const std::string& note);
  void finish() { line_.finish(); }

 private:
  std::string what_;
  std::uint64_t total_bytes_;
  ProgressLine line_;
};

// "1:05", "2:13:20"
std::string format_seconds(double seconds);

}  // namespace ddl
