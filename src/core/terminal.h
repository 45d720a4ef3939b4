// Colour, sparingly, where the terminal has it.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace ddl {

enum class Colour { kGood, kBad, kStrong };  // green, red, bold

// Whether the stream is a terminal with colour, and NO_COLOR (no-color.org) does not forbid it.
bool shows_colour(std::FILE* stream);

// The text in this colour; as it is where the stream has none.
std::string painted(std::string_view text, Colour colour, std::FILE* stream);

}  // namespace ddl
