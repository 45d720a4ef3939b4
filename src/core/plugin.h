// What is built on LibTorch is a library of its own, libddl_torch.so next to the program, which is opened
// when a command needs it; so is what is built on NCCL, libddl_nccl.so.
#pragma once

#include <string>

namespace ddl {

// A function of the plugin. `what` needs it ("several ranks"): where the plugin is missing, the UserError
// says so, and the one line to run.
void* torch_plugin_symbol(const char* name, const std::string& what);
void* nccl_plugin_symbol(const char* name, const std::string& what);

// "" where it can be opened, otherwise why not, in one line.
std::string torch_plugin_problem();
std::string nccl_plugin_problem();

}  // namespace ddl
