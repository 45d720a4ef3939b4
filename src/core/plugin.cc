#include "core/plugin.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>

#include "core/error.h"

namespace ddl {
namespace {

namespace fs = std::filesystem;

struct PluginName {
  const char *file, *place, *library, *part;  // `place`: the environment's name for where it is
};
constexpr PluginName kTorch{"libddl_torch.so", "DDL_TORCH_PLUGIN", "LibTorch", "torch"};
constexpr PluginName kNccl{"libddl_nccl.so", "DDL_NCCL_PLUGIN", "NCCL", "cuda"};

struct OpenedPlugin {
  void* library = nullptr;
  std::string problem;
};

// Beside the program; for the tests one folder above it; where ./ddl install puts it.
fs::path find_plugin(const PluginName& name) {
  if (const char* given = std::getenv(name.place)) return given;
  std::error_code error;
  const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const fs::path& place : {folder, folder.parent_path(), folder.parent_path() / "lib/ddl"})
    if (const fs::path file = place / name.file; fs::exists(file, error)) return file;
  return {};
}

OpenedPlugin open_plugin(const PluginName& name) {
  const fs::path file = find_plugin(name);
  if (file.empty())
    return {nullptr, fmt::format("{} is not set up; run: ./ddl setup {}", name.library, name.part)};
  if (void* library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) return {library, ""};
  const char* const reason = ::dlerror();
  return {nullptr, fmt::format("{} cannot be opened ({}); run: ./ddl setup {}", file.string(),
                               reason ? reason : "no reason given", name.part)};
}

const OpenedPlugin& torch_plugin() {
  static const OpenedPlugin opened = open_plugin(kTorch);
  return opened;
}
const OpenedPlugin& nccl_plugin() {
  static const OpenedPlugin opened = open_plugin(kNccl);
  return opened;
}

void* symbol_of(const OpenedPlugin& plugin, const PluginName& name, const char* symbol,
                const std::string& what) {
  if (!plugin.library) throw UserError("{}: {}", what, plugin.problem);
  if (void* found = ::dlsym(plugin.library, symbol)) return found;
  throw UserError("{}: {} has no {}: it is of another build; build it again (./ddl version does)", what,
                  name.file, symbol);
}

}  // namespace

void* torch_plugin_symbol(const char* name, const std::string& what) {
  return symbol_of(torch_plugin(), kTorch, name, what);
}
void* nccl_plugin_symbol(const char* name, const std::string& what) {
  return symbol_of(nccl_plugin(), kNccl, name, what);
}

std::string torch_plugin_problem() { return torch_plugin().problem; }
std::string nccl_plugin_problem() { return nccl_plugin().problem; }

}  // namespace ddl
