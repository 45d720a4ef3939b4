#include "data/progress_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

namespace ddl {
namespace {

constexpr double kTerminalSeconds = 0.2, kPlainSeconds = 10;

}  // namespace

std::string format_seconds(double seconds) {
  const auto s = static_cast<std::int64_t>(seconds + 0.5);
  if (s >= 3600) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{}:{:02}", s / 60, s % 60);
}

ProgressLine::ProgressLine(std::string what, Unit unit, std::uint64_t total, std::FILE* stream)
    : what_(std::move(what)),
      unit_(unit),
      total_(total),
      stream_(stream),
      start_(Clock::now()),
      last_(start_) {
  terminal_ = stream_ && ::isatty(::fileno(stream_)) != 0;
}

ProgressLine::~ProgressLine() {
  if (shown_ && terminal_) std::fputs("\r\033[K", stream_);
}

std::string ProgressLine::text(std::uint64_t done, double seconds, const std::string& note) const {
  const bool bytes = unit_ == Unit::kBytes;
  const char* unit = bytes ? "MB" : unit_ == Unit::kTokens ? "tokens" : "documents";
  const auto amount = [&](double x) {
    return bytes ? fmt::format("{:.1f}", x / 1e6) : fmt::format("{:.0f}", x);
  };
  const auto done_d = static_cast<double>(done + skipped_), total = static_cast<double>(total_);
  const double rate = seconds > 0 ? static_cast<double>(done) / seconds : 0;
  std::string line = what_ + ": ";
  if (total_ > 0) line += fmt::format("{:3.0f}%, {} of ", 100 * done_d / total, amount(done_d));
  line += fmt::format("{} {}, {} {}/s", amount(total_ > 0 ? total : done_d), unit, amount(rate), unit);
  if (total_ > 0 && rate > 0)
    line += fmt::format(", {} left", format_seconds(std::max(0.0, total - done_d) / rate));
  return note.empty() ? line : line + ", " + note;
}

void ProgressLine::update(std::uint64_t done, const std::string& note) {
  if (!stream_) return;
  const auto now = Clock::now();
  const std::chrono::duration<double> since_last = now - last_, elapsed = now - start_;
  if (since_last.count() < (terminal_ ? kTerminalSeconds : kPlainSeconds)) return;
  last_ = now;
  fmt::print(stream_, "{}{}{}", terminal_ ? "\r\033[K" : "", text(done, elapsed.count(), note),
             terminal_ ? "" : "\n");
  std::fflush(stream_);
  shown_ = true;
}

}  // namespace ddl
