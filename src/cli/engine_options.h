// --engine and --device of the commands that compute with a model.
#pragma once

#include <string>

#include "cli/command_line.h"

namespace ddl {

void add_engine_options(Command command, std::string& engine, std::string& device);

// What the options mean: --device alone is --engine torch. Chooses the device. Throws UserError where they do
// not go together.
void use_engine_options(std::string& engine, const std::string& device);

}  // namespace ddl
