#include "train/console.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <utility>

#include "core/clock.h"
#include "core/error.h"
#include "core/terminal.h"
#include "data/progress_line.h"

namespace ddl {
namespace {

constexpr double kLiveSeconds = 0.1;  // between redraws

// What is not finite is a number in memory, and null once it has been written to a file.
double number(const Json& record, const char* key) {
  return record.at(key).is_number() ? record.at(key).get<double>() : NAN;
}

std::string finite(const Json& record, const char* key, int decimals) {
  const double value = number(record, key);
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, decimals) : "not finite";
}

}  // namespace

std::string format_count(double count) {
  if (count >= 99.95e9) return fmt::format("{:.0f} G", count / 1e9);
  if (count >= 1e9) return fmt::format("{:.1f} G", count / 1e9);
  if (count >= 99.95e6) return fmt::format("{:.0f} M", count / 1e6);
  if (count >= 1e6) return fmt::format("{:.1f} M", count / 1e6);
  if (count >= 99.95e3) return fmt::format("{:.0f} k", count / 1e3);
  if (count >= 1e3) return fmt::format("{:.1f} k", count / 1e3);
  return fmt::format("{:.0f}", count);
}

std::string format_duration(double seconds) {
  if (seconds < 90) return fmt::format("{:.0f} s", std::max(1.0, seconds));
  if (seconds < 90 * 60) return fmt::format("{:.0f} min", seconds / 60);
  if (seconds < 36 * 3600) return fmt::format("{:.1f} hours", seconds / 3600);
  return fmt::format("{:.0f} days", seconds / 86400);
}

Console::Style Console::style_for(bool json) {
  return json ? Style::kJson : ::isatty(STDOUT_FILENO) ? Style::kLive : Style::kPlain;
}

Console::Console(Style style, double plain_seconds, long total_steps, std::string records)
    : style_(style), plain_seconds_(plain_seconds), total_steps_(total_steps), records_(std::move(records)) {}

Console::~Console() {
  if (live_line_) print(style_ == Style::kLineOnly ? "\r\033[K" : "\n");
}

// Other failures, such as a full disk, are said when the program ends.
void Console::print(const std::string& text) {
  if (std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0) return;
  if (errno != EPIPE || !std::freopen("/dev/null", "w", stdout)) return;
  std::fprintf(stderr,
               "ddl: nobody reads standard output any more; training continues, and its records are in %s\n",
               records_.c_str());
}

void Console::line(const std::string& text) {
  const bool clear = live_line_;
  live_line_ = false;
  print((clear ? "\r\033[K" : "") + text + "\n");
}

void Console::note(const std::string& text) {
  if (style_ == Style::kLive || style_ == Style::kPlain) line(text);
}

void Console::step(const Json& r) {
  const long step = r.at("step").get<long>();
  const double seconds = r.at("step_s").get<double>();
  step_seconds_ = step_seconds_ == 0 ? seconds : 0.95 * step_seconds_ + 0.05 * seconds;
  const bool due = now() - last_shown_ >= (style_ == Style::kPlain ? plain_seconds_ : kLiveSeconds);
  if (!due && step != total_steps_ && !r.contains("skipped")) return;
  last_shown_ = now();
  std::vector<LinePart> parts = {
      {fmt::format("step {:>{}}/{}", step, std::to_string(total_steps_).size(), total_steps_), 0},
      {"loss " + finite(r, "loss", 4), 0},
      {"norm " + finite(r, "grad_norm", 2), 3},
      {fmt::format("lr {:.2e}", r.at("lr").get<double>()), 4},
      {format_count(r.at("tokens_per_s").get<double>()) + " tok/s", 2}};
  if (r.contains("floor_share"))
    parts.push_back({fmt::format("{:.0f}% of floor", 100 * r["floor_share"].get<double>()), 5});
  if (r.contains("floor_busy")) parts.push_back({"floor measured on a busy machine", 6});
  parts.push_back({format_seconds(step_seconds_ * static_cast<double>(total_steps_ - step)) + " left", 1});
  if (r.contains("skipped")) parts.push_back({"update skipped: the loss or its gradient is not finite", 0});
  if (style_ == Style::kPlain || r.contains("skipped")) {
    const std::string text = fit_line(parts, " | ", kNoLimit);
    return line(r.contains("skipped") ? painted(text, Colour::kBad, stdout) : text);
  }
  print("\r\033[K" + fit_line(parts, " | ", line_columns(stdout)));
  live_line_ = true;
}

void Console::show(const Json& r) {
  if (style_ == Style::kSilent) return;
  if (style_ == Style::kJson) return print(to_line(r) + "\n");
  const std::string event = r.at("event");
  if (event == "step") return step(r);
  if (style_ == Style::kLineOnly) return;
  if (event == "validation") {
    std::string text =
        fmt::format("  validation at step {}: loss {}", r.at("step").get<long>(), finite(r, "loss", 4));
    if (std::isfinite(number(r, "loss"))) text += ", perplexity " + finite(r, "perplexity", 2);
    if (r.contains("answer_accuracy"))
      text += fmt::format(", answer tokens {:.1f}%", 100 * r["answer_accuracy"].get<double>());
    if (r.contains("exact_answers"))
      text += fmt::format(", whole answers {:.1f}%", 100 * r["exact_answers"].get<double>());
    line(text + (r.at("best").get<bool>() ? painted(" (best)", Colour::kGood, stdout) : "") +
         fmt::format(" [{:.1f} s]", r.at("seconds").get<double>()));
  } else if (event == "checkpoint") {
    line(fmt::format("  saved {} [copy {:.0f} ms, written in {:.1f} s]", r.at("folder").get<std::string>(),
                     1000 * r.at("copy_s").get<double>(), r.at("write_s").get<double>()));
  } else if (event == "sample") {
    line(fmt::format("  sample at step {}: {}{}", r.at("step").get<long>(), r.at("prompt").get<std::string>(),
                     r.at("text").get<std::string>()));
  } else if (r.contains("message")) {
    const std::string text = r["message"].get<std::string>();
    line(event == "done" ? painted(text, Colour::kStrong, stdout) : text);
  }
}

}  // namespace ddl
