// A line that says how far a long job is, how fast, and how long it will take; on a terminal it is rewritten
// in place and gone at the end, elsewhere a plain line appears now and then.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace ddl {

// A line that is rewritten in place must not wrap: the next one would leave its first row behind.
inline constexpr std::size_t kNoLimit = std::string::npos;
std::size_t line_columns(std::FILE* stream);  // that fit into the terminal now; elsewhere kNoLimit

struct LinePart {
  std::string text;
  int rank = 0;  // where the line is too long, the highest goes first; 0 stays
};
// The parts, joined, in at most `columns` bytes: the least important parts are left out, and the line is cut
// where even the rest is too long.
std::string fit_line(std::vector<LinePart> parts, std::string_view separator, std::size_t columns);

class ProgressLine {
 public:
  enum class Unit { kBytes, kTokens, kDocuments, kSteps };

  // `total` 0: unknown. `stream` null: silent.
  ProgressLine(std::string what, Unit unit, std::uint64_t total, std::FILE* stream);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void update(std::uint64_t done, const std::string& note = "");
  // The part of the total that was done before this began: it counts as done, but not in the rate.
  void skip(std::uint64_t amount) { skipped_ += amount; }

  // "prepare:  25%, 50.0 of 200.0 MB, 20.0 MB/s, 0:08 left, a note"
  std::string text(std::uint64_t done, double seconds, const std::string& note,
                   std::size_t columns = kNoLimit) const;

 private:
  using Clock = std::chrono::steady_clock;
  std::string what_;
  Unit unit_;
  std::uint64_t total_, skipped_ = 0;
  std::FILE* stream_;
  bool terminal_ = false, shown_ = false;
  Clock::time_point start_, last_;
};

std::string format_seconds(double seconds);  // "1:05", "2:13:20"

}  // namespace ddl
