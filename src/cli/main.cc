// The program's one entry: parses the command line, runs one command, turns errors into one message and exit
// code 2.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "cli/commands.h"
#include "core/error.h"

int main(int argc, char** argv) {
  CLI::App app{"Deep Delta: Transformers whose residual stream is rewritten by a delta rule"};
  app.name("ddl");
  app.require_subcommand(1);
  app.failure_message(CLI::FailureMessage::help);
  ddl::add_all_commands(app);
  try {
    app.parse(argc, argv);
    return 0;
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::RuntimeError& error) {  // a command that ends with a code of its own
    return error.get_exit_code();
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "ddl: %s\nTry './ddl --help', or './ddl COMMAND --help'.\n", error.what());
    return 2;
  } catch (const ddl::UserError& error) {
    std::fprintf(stderr, "ddl: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ddl: unexpected error: %s\n", error.what());
    return 1;
  }
}
