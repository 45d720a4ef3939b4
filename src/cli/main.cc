#include "cli/commands.h"

int main(int argc, char** argv) {
  return ddl::run_command_line(argc, argv,
                               "Deep Delta: Transformers whose residual stream is rewritten by a delta rule",
                               ddl::add_all_commands);
}
