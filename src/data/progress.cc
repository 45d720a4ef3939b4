#include "data/progress.h"

#include <fmt/format.h>
#include <unistd.h>

namespace ddl {
namespace {

constexpr double kTerminalSeconds = 0.2, kPlainSeconds = 10;

}  // namespace

std::string format_seconds(double seconds) {
  const auto s = static_cast<std::int64_t>(seconds + 0.5);
  if (s >= 3600) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{}:{:02}", s / 60, s % 60);
}

ProgressLine::ProgressLine(std::FILE* stream) : stream_(stream), start_(Clock::now()), last_(start_) {
  terminal_ = stream_ && ::isatty(::fileno(stream_)) != 0;
}

bool ProgressLine::due() {
  if (!stream_) return false;
  const std::chrono::duration<double> since_last = Clock::now() - last_;
  return since_last.count() >= (terminal_ ? kTerminalSeconds : kPlainSeconds);
}

void ProgressLine::show(const std::string& line) {
  if (!stream_) return;
  last_ = Clock::now();
  std::fprintf(stream_, terminal_ ? "\r\033[K%s" : "%s\n", line.c_str());
  std::fflush(stream_);
  shown_ = true;
}

void ProgressLine::finish() {
  if (stream_ && terminal_ && shown_) std::fprintf(stream_, "\n");
  shown_ = false;
}

double ProgressLine::seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

Progress::Progress(std::string what, std::uint64_t total_bytes, std::FILE* stream)
    : what_(std::move(what)), total_bytes_(total_bytes), line_(stream) {}

void Progress::update(std::uint64_t done_bytes, const std::string& note) {
  if (!line_.due()) return;
  const double mb = static_cast<double>(done_bytes) / 1e6, rate = mb / line_.seconds();
  std::string line = fmt::format("{}: {:.1f} MB", what_, mb);
  if (total_bytes_ > 0) {
    const double total = static_cast<double>(total_bytes_) / 1e6;
    const double left = rate > 0 ? (total - mb) / rate : 0;
    line = fmt::format("{}: {:3.0f}%, {:.1f} of {:.1f} MB, {:.1f} MB/s, {} left", what_, 100 * mb / total, mb,
                       total, rate, format_seconds(left > 0 ? left : 0));
  } else {
    line += fmt::format(", {:.1f} MB/s", rate);
  }
  if (!note.empty()) line += ", " + note;
  line_.show(line);
}

}  // namespace ddl
