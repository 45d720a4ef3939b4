#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "cli/commands.h"

namespace {

// Threads that wait for one another spin for a moment and then sleep. The OpenMP library's own moment is so
// long that on a busy machine it takes the processor from the very thread that is waited for, and everything
// is tens of times slower; on a quiet one a short moment is as fast. The library reads the setting before
// main: hence the second start. Where that fails, all goes on as it would have.
void spin_briefly(char** argv) {
  if (std::getenv("GOMP_SPINCOUNT") || std::getenv("OMP_WAIT_POLICY")) return;
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return;
  ::setenv("GOMP_SPINCOUNT", "1000", 1);
  ::execv(program.c_str(), argv);  // by its path: the process keeps its name
}

}  // namespace

int main(int argc, char** argv) {
  // A file that may not grow further (ulimit -f) is then an error of the write, which says which file it is.
  std::signal(SIGXFSZ, SIG_IGN);
  spin_briefly(argv);
  static char version[] = "version";  // the command has options of its own, which a flag could not
  if (argc > 1 && std::string_view(argv[1]) == "--version") argv[1] = version;
  return ddl::run_command_line(argc, argv,
                               "Deep Delta: Transformers whose residual stream is rewritten by a delta rule",
                               ddl::add_all_commands);
}
