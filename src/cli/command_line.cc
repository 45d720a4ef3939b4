#include "cli/command_line.h"

#include <CLI/CLI.hpp>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <new>

#include "core/error.h"
#include "core/options.h"
#include "core/terminal.h"
#include "model/instruction_set.h"

namespace ddl {

Option Option::required() { return Option(option_->required()); }
Option Option::show_default() { return Option(option_->capture_default_str()); }
Option Option::one_of(const std::vector<std::string>& values) {
  return Option(option_->check(CLI::IsMember(values)));
}
Option Option::non_negative() {  // CLI11's own check would take -1 for the largest unsigned number
  return Option(option_->check([](const std::string& text) -> std::string {
    return text.starts_with('-') ? "expected 0 or more, found " + text : "";
  }));
}
Option Option::range(Index low, Index high) {
  return Option(option_->check([low, high](const std::string& text) -> std::string {
    Index value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc() && end == text.data() + text.size() && value >= low && value <= high) return "";
    return fmt::format("expected a whole number from {} to {}, found {}", low, high, text);
  }));
}
Option Option::excludes(Option other) { return Option(option_->excludes(other.option_)); }
Option Option::separated_by(char delimiter) { return Option(option_->delimiter(delimiter)); }
Option Option::one_value_each() { return Option(option_->allow_extra_args(false)); }
bool Option::given() const { return option_->count() > 0; }

Command Command::add_command(const std::string& name, const std::string& help) {
  return Command(app_->add_subcommand(name, help));
}
void Command::require_command() { app_->require_subcommand(1); }

Option Command::add_option(const std::string& name, std::string& variable, const std::string& help) {
  return Option(app_->add_option(name, variable, help));
}
Option Command::add_option(const std::string& name, Index& variable, const std::string& help) {
  return Option(app_->add_option(name, variable, help));
}
Option Command::add_option(const std::string& name, int& variable, const std::string& help) {
  return Option(app_->add_option(name, variable, help));
}
Option Command::add_option(const std::string& name, std::uint64_t& variable, const std::string& help) {
  return Option(app_->add_option(name, variable, help));
}
Option Command::add_option(const std::string& name, float& variable, const std::string& help) {
  return Option(app_->add_option(name, variable, help));
}
Option Command::add_option(const std::string& name, double& variable, const std::string& help) {
  return Option(app_->add_option(name, variable, help));
}
Option Command::add_option(const std::string& name, std::vector<std::string>& variable,
                           const std::string& help) {
  return Option(app_->add_option(name, variable, help));
}
Option Command::add_option(const std::string& name, std::vector<Index>& variable, const std::string& help) {
  return Option(app_->add_option(name, variable, help));
}
Option Command::add_flag(const std::string& name, bool& variable, const std::string& help) {
  return Option(app_->add_flag(name, variable, help));
}
void Command::hide() { app_->group(""); }

namespace {

void list_into(const CLI::App& app, const std::string& name, std::vector<CommandInfo>& all) {
  CommandInfo info{name, app.get_description(), {}, {}};
  for (const CLI::Option* option : app.get_options())
    info.options.push_back(
        {option->get_positional() ? option->get_name(true) : "--" + option->get_lnames().front(),
         option->get_description(), option->get_items_expected_max() > 0});
  const auto commands = app.get_subcommands([](const CLI::App* sub) { return !sub->get_group().empty(); });
  for (const CLI::App* sub : commands) info.commands.push_back(sub->get_name());
  all.push_back(std::move(info));
  for (const CLI::App* sub : commands)
    list_into(*sub, name.empty() ? sub->get_name() : name + " " + sub->get_name(), all);
}

}  // namespace

std::vector<CommandInfo> Command::list() const {
  std::vector<CommandInfo> all;
  list_into(*app_, "", all);
  return all;
}

void Command::on_run(std::function<void()> run) { app_->callback(std::move(run)); }

namespace {

// CLI11 only says that some command is missing. This names the word that is not a command, and the command it
// is closest to. Follows the commands that were given: ./ddl data prepar is a misspelt command of data.
std::string explain(const CLI::App& program, const CLI::ParseError& error, int argc, char** argv) {
  const CLI::App* command = &program;
  for (int i = 1; i < argc; ++i) {
    std::vector<std::string> names;
    const CLI::App* next = nullptr;
    for (const CLI::App* sub : command->get_subcommands([](const CLI::App*) { return true; })) {
      names.push_back(sub->get_name());
      if (sub->get_name() == argv[i]) next = sub;
    }
    if (names.empty() || argv[i][0] == '-') break;
    if (!next)
      return fmt::format("unknown command '{}'; did you mean '{}'?", argv[i], nearest(argv[i], names));
    command = next;
  }
  return error.what();
}

// The command that a wrong line is of, as far as it names one, with a blank in front: " data prepare".
std::string command_given(const CLI::App& program, int argc, char** argv) {
  const CLI::App* command = &program;
  std::string name;
  for (int i = 1; i < argc; ++i) {
    const auto found =
        command->get_subcommands([&](const CLI::App* sub) { return sub->get_name() == argv[i]; });
    if (found.empty()) break;
    command = found.front(), name += " " + command->get_name();
  }
  return name;
}

std::string error_mark() { return painted("ddl:", Colour::kBad, stderr); }

int parse_and_run(int argc, char** argv, const std::string& about, void (*add_commands)(Command)) {
  CLI::App program{about};
  program.name("ddl");
  program.require_subcommand(1);
  add_commands(Command(&program));
  try {
    settle_isa();  // a wrong DDL_ISA is an error in every command
    program.parse(argc, argv);
    return 0;
  } catch (const CLI::CallForHelp& help) {
    return program.exit(help);
  } catch (const CLI::ParseError& error) {
    const std::string command = command_given(program, argc, argv);
    fmt::print(stderr, "{} {}\nTry './ddl{} --help'{}.\n", error_mark(), explain(program, error, argc, argv),
               command, command.empty() ? ", or './ddl COMMAND --help'" : "");
    return 2;
  } catch (const ExitWithCode& exit) {
    return exit.code;
  } catch (const UserError& error) {
    std::fprintf(stderr, "%s %s\n", error_mark().c_str(), error.what());
    return 2;
  } catch (const std::filesystem::filesystem_error& error) {  // links in a circle, names that are too long
    std::fprintf(stderr, "ddl: %s: %s; expected a path that can be used\n", error.path1().c_str(),
                 error.code().message().c_str());
    return 2;
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "ddl: there is not enough memory for this; give it less to do at a time\n");
    return 2;
  } catch (const std::exception& error) {
    if (std::ferror(stdout)) return 1;  // said below
    std::fprintf(stderr, "%s unexpected error: %s\n", error_mark().c_str(), error.what());
    return 1;
  }
}

}  // namespace

int run_command_line(int argc, char** argv, const std::string& about, void (*add_commands)(Command)) {
  const int code = parse_and_run(argc, argv, about, add_commands);
  // What was printed may still be in the buffer: only now is it known whether there was room for it.
  const bool flushed = std::fflush(stdout) == 0;
  if (flushed && !std::ferror(stdout)) return code;
  std::fprintf(stderr, "ddl: standard output: cannot be written%s\n",
               flushed ? "" : fmt::format(" ({})", std::strerror(errno)).c_str());
  return 2;
}

}  // namespace ddl
