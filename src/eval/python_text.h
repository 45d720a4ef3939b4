// Methods of Python's str that prompts are made with, on UTF-8. Text that is not UTF-8 does not get here: the
// readers of task data refuse it.
#pragma once

#include <string>
#include <string_view>

#include "core/index.h"

namespace ddl {

std::string_view python_lstrip(std::string_view text);  // white space as Python defines it, not as C does
std::string_view python_rstrip(std::string_view text);
std::string_view python_strip(std::string_view text);

// The first character in title case, all others in lower case ("the MAN" -> "The man"). Python's rule for a
// capital sigma that ends a word is left out: it becomes the ordinary small one.
std::string python_capitalize(std::string_view text);

Index code_points(std::string_view text);  // len(text)

}  // namespace ddl
