#include "core/terminal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>

namespace ddl {

bool shows_colour(std::FILE* stream) {
  const char* const forbidden = std::getenv("NO_COLOR");
  const char* const terminal = std::getenv("TERM");
  if (forbidden && *forbidden) return false;
  if (!terminal || std::string_view(terminal) == "dumb") return false;
  return ::isatty(::fileno(stream)) != 0;
}

std::string painted(std::string_view text, Colour colour, std::FILE* stream) {
  if (!shows_colour(stream)) return std::string(text);
  const int code = colour == Colour::kGood ? 32 : colour == Colour::kBad ? 31 : 1;
  return fmt::format("\033[{}m{}\033[0m", code, text);
}

}  // namespace ddl
