// Words of a command line that the program prints for a person to use.
#pragma once

#include <string>

namespace ddl {

// Quoted where a shell would take it apart or read something into it.
std::string shell_word(const std::string& word);

}  // namespace ddl
