#include "core/error.h"

#include <cstdio>
#include <cstdlib>

namespace ddl {

void check_failed(const char* file, int line, const char* condition, const std::string& message) {
  std::fprintf(stderr,
               "ddl: internal error at %s:%d: %s (expected %s)\n"
               "This is a bug in ddl, not in your input. Please report this line and the command.\n",
               file, line, message.c_str(), condition);
  std::fflush(stderr);
  std::abort();
}

}  // namespace ddl
