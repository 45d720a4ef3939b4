#include "cli/conversation.h"

#include <charconv>
#include <cstdint>
#include <vector>

#include "core/error.h"
#include "core/options.h"

namespace ddl {
namespace {

constexpr char kHelp[] =
    "A line is a prompt; an empty line or Ctrl-D ends. A prompt that begins with / is written with two: "
    "//usr\n"
    "  /temperature T   0 always takes the most likely token (now {:g})\n"
    "  /seed N          of the next text (now {})\n"
    "  /max N           most new tokens (now {})\n"
    "  /again           another text for the last prompt\n"
    "  /gates           what steered the writes of the last text, by sublayer\n"
    "  /help            this list";

template <class Number>
Number number(const std::string& command, const std::string& text, const char* expected) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty())
    throw UserError("{}: expected {}, found '{}'", command, expected, text);
  return value;
}

}  // namespace

void Conversation::ask(const std::string& prompt) {
  last_ = prompt;
  asked_ = true;
  answer_(prompt);
  ++options_.sampling.seed;  // the same prompt again: another text
}

bool Conversation::obey(const std::string& line) {
  const std::size_t space = line.find(' ');
  const std::string command = line.substr(0, space);
  std::string value = space == std::string::npos ? "" : line.substr(space + 1);
  value.erase(0, value.find_first_not_of(' '));
  value.erase(value.find_last_not_of(' ') + 1);
  if (command == "/temperature") {
    SamplerOptions changed = options_.sampling;
    changed.temperature = number<double>(command, value, "a number from 0");
    changed.check();
    options_.sampling = changed;
  } else if (command == "/seed") {
    options_.sampling.seed = number<std::uint64_t>(command, value, "a whole number from 0");
  } else if (command == "/max") {
    const Index most = number<Index>(command, value, "a whole number from 0");
    if (most < 0) throw UserError("/max: expected a whole number from 0, found {}", most);
    options_.max_new_tokens = most;
  } else if (command == "/again") {
    if (!asked_) throw UserError("/again: no prompt yet");
    ask(last_);
  } else if (command == "/gates") {
    if (!asked_) throw UserError("/gates: no text yet; give a prompt first");
    say_(gates_());
  } else if (command == "/help") {
    say_(fmt::format(kHelp, options_.sampling.temperature, options_.sampling.seed, options_.max_new_tokens));
  } else {
    const std::string near = nearest(command, {"/temperature", "/seed", "/max", "/again", "/gates", "/help"});
    throw UserError("no command '{}'; did you mean {}? /help lists them", command, near);
  }
  return true;
}

bool Conversation::take(const std::string& line) {
  if (line.empty()) return false;
  try {
    if (line.starts_with("//"))
      ask(line.substr(1));
    else if (line.starts_with("/"))
      return obey(line);
    else
      ask(line);
  } catch (const UserError& error) {  // too long, say: the next may fit
    say_(fmt::format("ddl: {}", error.what()));
  }
  return true;
}

}  // namespace ddl
