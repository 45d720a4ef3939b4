#include "data/progress_line.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

namespace ddl {
namespace {

constexpr double kTerminalSeconds = 0.2, kPlainSeconds = 10;

}  // namespace

std::size_t line_columns(std::FILE* stream) {
  const int file = ::fileno(stream);
  if (::isatty(file) == 0) return kNoLimit;
  constexpr std::size_t kUsual = 80;  // where the terminal does not say
  winsize size{};
  const bool known = ::ioctl(file, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  return (known ? size.ws_col : kUsual) - 1;  // the last is the cursor's
}

std::string fit_line(std::vector<LinePart> parts, std::string_view separator, std::size_t columns) {
  const auto joined = [&] {
    std::string line;
    for (const LinePart& part : parts) {
      if (!line.empty()) line += separator;
      line += part.text;
    }
    return line;
  };
  const auto by_rank = [](const LinePart& a, const LinePart& b) { return a.rank < b.rank; };
  std::string line = joined();
  while (line.size() > columns) {
    const auto least = std::max_element(parts.begin(), parts.end(), by_rank);
    if (least->rank == 0) break;
    parts.erase(least);
    line = joined();
  }
  if (line.size() <= columns) return line;
  const auto inside_character = [&](std::size_t at) { return (line[at] & 0xC0) == 0x80; };  // UTF-8
  while (columns > 0 && inside_character(columns)) --columns;
  return line.substr(0, columns);
}

std::string format_seconds(double seconds) {
  constexpr double kMost = 1e9;
  const auto s = static_cast<std::int64_t>(seconds > 0 ? std::min(seconds, kMost) + 0.5 : 0);
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

std::string ProgressLine::text(std::uint64_t done, double seconds, const std::string& note,
                               std::size_t columns) const {
  const bool bytes = unit_ == Unit::kBytes;
  const char* unit = bytes                    ? "MB"
                     : unit_ == Unit::kTokens ? "tokens"
                     : unit_ == Unit::kSteps  ? "steps"
                                              : "documents";
  const auto amount = [&](double x) {
    return bytes ? fmt::format("{:.1f}", x / 1e6) : fmt::format("{:.0f}", x);
  };
  const auto done_d = static_cast<double>(done + skipped_), total = static_cast<double>(total_);
  const double rate = seconds > 0 ? static_cast<double>(done) / seconds : 0;
  const std::string share =
      total_ > 0 ? fmt::format("{:3.0f}%, {} of ", 100 * done_d / total, amount(done_d)) : "";
  std::vector<LinePart> parts;
  parts.push_back({fmt::format("{}: {}{} {}", what_, share, amount(total_ > 0 ? total : done_d), unit), 0});
  parts.push_back({fmt::format("{} {}/s", amount(rate), unit), 3});
  if (total_ > 0 && rate > 0)
    parts.push_back({format_seconds(std::max(0.0, total - done_d) / rate) + " left", 1});
  if (!note.empty()) parts.push_back({note, 2});
  return fit_line(std::move(parts), ", ", columns);
}

void ProgressLine::update(std::uint64_t done, const std::string& note) {
  if (!stream_) return;
  const auto now = Clock::now();
  const std::chrono::duration<double> since_last = now - last_, elapsed = now - start_;
  if (since_last.count() < (terminal_ ? kTerminalSeconds : kPlainSeconds)) return;
  last_ = now;
  const std::string line = text(done, elapsed.count(), note, line_columns(stream_));
  fmt::print(stream_, "{}{}{}", terminal_ ? "\r\033[K" : "", line, terminal_ ? "" : "\n");
  std::fflush(stream_);
  shown_ = true;
}

}  // namespace ddl
