// What a shell and a manual reader need to know of the commands, from the list the program itself parses with.
#pragma once

#include <string>
#include <vector>

#include "cli/command_line.h"

namespace ddl {

std::string bash_completion(const std::vector<CommandInfo>& commands);
std::string zsh_completion(const std::vector<CommandInfo>& commands);
std::string fish_completion(const std::vector<CommandInfo>& commands);
std::string manual_page(const std::vector<CommandInfo>& commands);  // roff, for man(1)

}  // namespace ddl
