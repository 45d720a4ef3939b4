// ddl completion bash|zsh|fish|man: what ./ddl install puts where shells and man(1) look.
#include "cli/shell_completion.h"

#include <cstdio>
#include <memory>

#include "cli/build_info.h"
#include "cli/commands.h"
#include "core/error.h"

namespace ddl {
namespace {

std::string replaced(std::string text, const std::string& what, const std::string& with) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size())
    text.replace(at, what.size(), with);
  return text;
}

bool positional(const OptionInfo& option) { return !option.name.starts_with("-"); }

// In single quotes, for any shell.
std::string shell_quoted(const std::string& text) { return "'" + replaced(text, "'", "'\\''") + "'"; }

// Patterns of a case that takes the words given so far one further: " data", " data prepare".
std::string known_paths(const std::vector<CommandInfo>& commands) {
  std::string paths;
  for (const CommandInfo& c : commands)
    if (!c.name.empty()) paths += fmt::format("{}\" {}\"", paths.empty() ? "" : "|", c.name);
  return paths;
}

std::string key_of(const CommandInfo& c) { return c.name.empty() ? "" : " " + c.name; }

}  // namespace

std::string bash_completion(const std::vector<CommandInfo>& commands) {
  std::string text =
      "# Completion of ddl for bash, written by `ddl completion bash`.\n"
      "_ddl() {\n"
      "  local current=${COMP_WORDS[COMP_CWORD]} command= names= options= i\n"
      "  for ((i = 1; i < COMP_CWORD; ++i)); do\n"
      "    case \"$command ${COMP_WORDS[i]}\" in\n"
      "      " +
      known_paths(commands) +
      ") command=\"$command ${COMP_WORDS[i]}\" ;;\n"
      "    esac\n"
      "  done\n"
      "  case $command in\n";
  for (const CommandInfo& c : commands) {
    std::string options;
    for (const OptionInfo& option : c.options)
      if (!positional(option)) options += (options.empty() ? "" : " ") + option.name;
    text += fmt::format("    \"{}\") names=\"{}\" options=\"{}\" ;;\n", key_of(c), fmt::join(c.commands, " "),
                        options);
  }
  return text +
         "  esac\n"
         "  case $current in\n"
         "    -*) COMPREPLY=($(compgen -W \"$options\" -- \"$current\")) ;;\n"
         "    *) COMPREPLY=($(compgen -W \"$names\" -- \"$current\")) ;;\n"
         "  esac\n"
         "}\n"
         "complete -o default -F _ddl ddl ./ddl\n";
}

std::string zsh_completion(const std::vector<CommandInfo>& commands) {
  std::string text =
      "#compdef ddl\n"
      "# Completion of ddl for zsh, written by `ddl completion zsh`.\n"
      "_ddl() {\n"
      "  local command= i\n"
      "  local -a names options\n"
      "  for ((i = 2; i < CURRENT; ++i)); do\n"
      "    case \"$command ${words[i]}\" in\n"
      "      (" +
      known_paths(commands) +
      ") command=\"$command ${words[i]}\" ;;\n"
      "    esac\n"
      "  done\n"
      "  case $command in\n";
  const auto help_of = [&](const std::string& name) {
    for (const CommandInfo& c : commands)
      if (c.name == name) return c.help;
    return std::string();
  };
  const auto item = [](const std::string& name, const std::string& help) {
    return " " + shell_quoted(replaced(name, ":", "\\:") + ":" + help);
  };
  for (const CommandInfo& c : commands) {
    std::string names, options;
    for (const std::string& name : c.commands)
      names += item(name, help_of(c.name.empty() ? name : c.name + " " + name));
    for (const OptionInfo& option : c.options)
      if (!positional(option)) options += item(option.name, option.help);
    text += fmt::format("    (\"{}\")\n      names=({} )\n      options=({} )\n      ;;\n", key_of(c), names,
                        options);
  }
  return text +
         "  esac\n"
         "  if [[ $PREFIX == -* ]]; then\n"
         "    _describe option options\n"
         "  elif (( $#names )); then\n"
         "    _describe command names\n"
         "  else\n"
         "    _files\n"
         "  fi\n"
         "}\n"
         "_ddl \"$@\"\n";
}

std::string fish_completion(const std::vector<CommandInfo>& commands) {
  std::string text = "# Completion of ddl for fish, written by `ddl completion fish`.\n";
  for (const CommandInfo& c : commands) {
    std::string seen = c.name.empty() ? "__fish_use_subcommand" : "";
    for (std::size_t from = 0; !c.name.empty() && from != std::string::npos;) {
      const std::size_t space = c.name.find(' ', from);
      seen += (seen.empty() ? "" : "; and ") + std::string("__fish_seen_subcommand_from ") +
              c.name.substr(from, space - from);
      from = space == std::string::npos ? space : space + 1;
    }
    std::string fresh = seen;
    if (!c.name.empty() && !c.commands.empty())
      fresh += fmt::format("; and not __fish_seen_subcommand_from {}", fmt::join(c.commands, " "));
    for (const CommandInfo& below : commands)
      for (const std::string& name : c.commands)
        if (below.name == (c.name.empty() ? name : c.name + " " + name))
          text += fmt::format("complete -c ddl -f -n {} -a {} -d {}\n", shell_quoted(fresh), name,
                              shell_quoted(below.help));
    for (const OptionInfo& option : c.options)
      if (!positional(option))
        text +=
            fmt::format("complete -c ddl -n {} -l {}{} -d {}\n", shell_quoted(seen), option.name.substr(2),
                        option.takes_value ? " -r" : "", shell_quoted(option.help));
  }
  return text;
}

std::string manual_page(const std::vector<CommandInfo>& commands) {
  const auto plain = [](std::string text) {  // a roff line must not begin with . or ', and - is a minus
    text = replaced(replaced(text, "\\", "\\e"), "-", "\\-");
    return text.starts_with(".") || text.starts_with("'") ? "\\&" + text : text;
  };
  std::string text = fmt::format(".TH DDL 1 \"\" \"ddl {}\" \"User Commands\"\n", kBuildInfo.version);
  text += fmt::format(".SH NAME\nddl \\- {}\n.SH SYNOPSIS\n.B ddl\n.I COMMAND\n[options]\n",
                      plain(commands.front().help));
  text +=
      ".SH DESCRIPTION\n"
      "Trains, evaluates and compares Transformers whose residual stream is rewritten by a delta rule.\n"
      "Every command explains itself with\n.BR \\-\\-help .\n.SH COMMANDS\n";
  for (const CommandInfo& c : commands) {
    if (c.name.empty() || !c.commands.empty()) continue;  // groups have no options of their own
    text += fmt::format(".SS ddl {}\n{}\n", plain(c.name), plain(c.help));
    for (const OptionInfo& option : c.options)
      if (option.name != "--help")
        text += fmt::format(".TP\n.B {}\n{}\n", plain(option.name), plain(option.help));
  }
  return text +
         ".SH ENVIRONMENT\n"
         ".TP\n.B DDL_THREADS\nHow many threads to use.\n"
         ".TP\n.B DDL_ISA\nscalar, avx2, avx512 or avx512vnni: the instruction set to use.\n"
         ".TP\n.B NO_COLOR\nWithout colour on a terminal.\n"
         ".SH EXIT STATUS\n0: done. 2: refused, or something outside the program failed. 128 + N: stopped by "
         "signal N.\n";
}

void add_completion_command(Command app) {
  auto what = std::make_shared<std::string>();
  Command command = app.add_command("completion", "Completion for a shell, or the manual page");
  command.add_option("what", *what, "bash, zsh, fish or man")
      .required()
      .one_of({"bash", "zsh", "fish", "man"});
  command.hide();
  command.on_run([app, what] {
    const std::vector<CommandInfo> commands = app.list();
    const std::string text = *what == "bash"   ? bash_completion(commands)
                             : *what == "zsh"  ? zsh_completion(commands)
                             : *what == "fish" ? fish_completion(commands)
                                               : manual_page(commands);
    std::fputs(text.c_str(), stdout);
  });
}

}  // namespace ddl
