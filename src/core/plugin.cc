#include "core/plugin.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>

#include "core/error.h"

namespace ddl {
namespace {

namespace fs = std::filesystem;

struct OpenedPlugin {
  void* library = nullptr;
  std::string problem;
};

// Beside the program, or, for the tests, one folder above it.
fs::path find_plugin() {
  if (const char* given = std::getenv("DDL_TORCH_PLUGIN")) return given;
  std::error_code error;
  const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const fs::path& place : {folder, folder.parent_path()})
    if (const fs::path file = place / "libddl_torch.so"; fs::exists(file, error)) return file;
  return {};
}

OpenedPlugin open_plugin() {
  const fs::path file = find_plugin();
  if (file.empty()) return {nullptr, "LibTorch is not set up; run: ./ddl setup torch"};
  if (void* library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) return {library, ""};
  const char* const reason = ::dlerror();
  return {nullptr, fmt::format("{} cannot be opened ({}); run: ./ddl setup torch", file.string(),
                               reason ? reason : "no reason given")};
}

const OpenedPlugin& plugin() {
  static const OpenedPlugin opened = open_plugin();
  return opened;
}

}  // namespace

void* torch_plugin_symbol(const char* name, const std::string& what) {
  if (!plugin().library) throw UserError("{}: {}", what, plugin().problem);
  if (void* symbol = ::dlsym(plugin().library, name)) return symbol;
  throw UserError(
      "{}: libddl_torch.so has no {}: it is of another build; build it again (./ddl version does)", what,
      name);
}

std::string torch_plugin_problem() { return plugin().problem; }

}  // namespace ddl
