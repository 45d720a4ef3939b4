// The command line. CLI11 does the work behind this header, which no command includes: its templates would
// cost every one of them ten seconds of compilation.
#pragma once

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/index.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace ddl {

class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}
  Option required();
  Option show_default();  // the variable's value becomes part of the help
  Option one_of(const std::vector<std::string>& values);
  Option non_negative();
  Option range(Index low, Index high);  // whole numbers, both ends included
  Option excludes(Option other);
  Option separated_by(char delimiter);  // several values in one argument
  Option one_value_each();              // a list of which every value has the option's name before it
  bool given() const;

 private:
  CLI::Option* option_;
};

// What a command is called and takes, for completion and the manual page.
struct OptionInfo {
  std::string name;  // "--out", or "INPUT" where it is positional
  std::string help;
  bool takes_value = true;
};
struct CommandInfo {
  std::string name;  // "data prepare"; "" is the program itself
  std::string help;
  std::vector<OptionInfo> options;
  std::vector<std::string> commands;  // last words of the names of those below it
};

// A command, or the program itself. Refers to what it adds to: copies are the same command.
class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}
  Command add_command(const std::string& name, const std::string& help);
  void require_command();  // one of those added must be given
  // A name without dashes is positional. The variable must outlive the parsing.
  Option add_option(const std::string& name, std::string& variable, const std::string& help);
  Option add_option(const std::string& name, Index& variable, const std::string& help);
  Option add_option(const std::string& name, int& variable, const std::string& help);
  Option add_option(const std::string& name, std::uint64_t& variable, const std::string& help);
  Option add_option(const std::string& name, float& variable, const std::string& help);
  Option add_option(const std::string& name, double& variable, const std::string& help);
  Option add_option(const std::string& name, std::vector<std::string>& variable, const std::string& help);
  Option add_option(const std::string& name, std::vector<Index>& variable, const std::string& help);
  Option add_flag(const std::string& name, bool& variable, const std::string& help);
  void on_run(std::function<void()> run);
  void hide();                            // not in the list of commands
  std::vector<CommandInfo> list() const;  // itself and all below it that are not hidden

 private:
  CLI::App* app_;
};

// Thrown by a command that ends with an exit code of its own and has said why.
struct ExitWithCode : std::runtime_error {
  explicit ExitWithCode(int exit_code) : std::runtime_error("exit"), code(exit_code) {}
  int code;
};

// Parses, runs the command that was named, turns errors into one message; returns the exit code.
int run_command_line(int argc, char** argv, const std::string& about, void (*add_commands)(Command));

}  // namespace ddl
