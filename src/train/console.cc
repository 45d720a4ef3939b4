#include "train/console.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>

#include "core/clock.h"
#include "core/error.h"

namespace ddl {
namespace {

constexpr double kLiveSeconds = 0.1;  // between redraws

}  // namespace

std::string format_duration(double seconds) {
  const long s = std::lround(std::min(std::max(seconds, 0.0), 1e9));
  return s >= 3600 ? fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60)
                   : fmt::format("{}:{:02}", s / 60, s % 60);
}

std::string format_count(double count) {
  if (count >= 99.95e9) return fmt::format("{:.0f} G", count / 1e9);
  if (count >= 1e9) return fmt::format("{:.1f} G", count / 1e9);
  if (count >= 99.95e6) return fmt::format("{:.0f} M", count / 1e6);
  if (count >= 1e6) return fmt::format("{:.1f} M", count / 1e6);
  if (count >= 99.95e3) return fmt::format("{:.0f} k", count / 1e3);
  if (count >= 1e3) return fmt::format("{:.1f} k", count / 1e3);
  return fmt::format("{:.0f}", count);
}

Console::Style Console::style_for(bool json) {
  return json ? Style::kJson : ::isatty(STDOUT_FILENO) ? Style::kLive : Style::kPlain;
}

Console::Console(Style style, double plain_seconds, long total_steps)
    : style_(style), plain_seconds_(plain_seconds), total_steps_(total_steps) {}

Console::~Console() {
  if (live_line_) std::fputs(style_ == Style::kLineOnly ? "\r\033[K" : "\n", stdout), std::fflush(stdout);
}

void Console::line(const std::string& text) {
  if (live_line_) std::fputs("\r\033[K", stdout);
  live_line_ = false;
  std::fputs((text + "\n").c_str(), stdout);
  std::fflush(stdout);
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
  const auto number = [&](const char* key, const char* format) {
    return r.at(key).is_number() ? fmt::format(fmt::runtime(format), r.at(key).get<double>())
                                 : std::string("not finite");
  };
  std::string text = fmt::format("step {:>{}}/{} | loss {} | norm {} | lr {:.2e} | {} tok/s", step,
                                 fmt::formatted_size("{}", total_steps_), total_steps_,
                                 number("loss", "{:.4f}"), number("grad_norm", "{:.2f}"),
                                 r.at("lr").get<double>(), format_count(r.at("tokens_per_s").get<double>()));
  if (r.contains("floor_share"))
    text += fmt::format(" | {:.0f}% of floor", 100 * r["floor_share"].get<double>());
  text +=
      fmt::format(" | {} left", format_duration(step_seconds_ * static_cast<double>(total_steps_ - step)));
  if (r.contains("skipped")) return line(text + " | update skipped: the loss or its gradient is not finite");
  if (style_ == Style::kPlain) return line(text);
  std::fputs(("\r\033[K" + text).c_str(), stdout);
  std::fflush(stdout);
  live_line_ = true;
}

void Console::show(const Json& r) {
  if (style_ == Style::kSilent) return;
  if (style_ == Style::kJson) {
    std::puts(to_line(r).c_str());
    std::fflush(stdout);
    return;
  }
  const std::string event = r.at("event");
  if (event == "step") return step(r);
  if (style_ == Style::kLineOnly) return;
  if (event == "validation") {
    const bool finite = r.at("loss").is_number();
    std::string text =
        finite ? fmt::format("  validation at step {}: loss {:.4f}, perplexity {:.2f}",
                             r.at("step").get<long>(), r.at("loss").get<double>(),
                             r.at("perplexity").is_number() ? r["perplexity"].get<double>() : INFINITY)
               : fmt::format("  validation at step {}: loss not finite", r.at("step").get<long>());
    if (r.contains("answer_accuracy"))
      text += fmt::format(", answer tokens {:.1f}%", 100 * r["answer_accuracy"].get<double>());
    if (r.contains("exact_answers"))
      text += fmt::format(", whole answers {:.1f}%", 100 * r["exact_answers"].get<double>());
    line(text + (r.at("best").get<bool>() ? " (best)" : "") +
         fmt::format(" [{:.1f} s]", r.at("seconds").get<double>()));
  } else if (event == "checkpoint") {
    line(fmt::format("  saved {} [copy {:.0f} ms, written in {:.1f} s]", r.at("folder").get<std::string>(),
                     1000 * r.at("copy_s").get<double>(), r.at("write_s").get<double>()));
  } else if (r.contains("message")) {
    line(r["message"].get<std::string>());
  }
}

}  // namespace ddl
