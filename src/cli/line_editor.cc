#include "cli/line_editor.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>

#ifdef DDL_LIBEDIT
#include <editline/readline.h>
#endif

namespace ddl {

std::string history_file() {
  const auto folder = [](const char* variable, const char* below) -> std::string {
    const char* const value = std::getenv(variable);
    return value && *value == '/' ? std::string(value) + below : "";
  };
  const std::string state = folder("XDG_STATE_HOME", "/ddl/history");
  return state.empty() ? folder("HOME", "/.local/state/ddl/history") : state;
}

#ifdef DDL_LIBEDIT

LineEditor::LineEditor() {
  rl_readline_name = "ddl";
  rl_outstream = stderr;  // standard output is for the text
  rl_initialize();
  using_history();
  stifle_history(1000);
  if (const std::string file = history_file(); !file.empty()) read_history(file.c_str());
}

// A history that cannot be kept is no reason to complain.
LineEditor::~LineEditor() {
  const std::string file = history_file();
  if (file.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(file).parent_path(), error);
  if (error || write_history(file.c_str()) != 0) return;
  std::filesystem::permissions(file, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write,
                               error);
}

std::optional<std::string> LineEditor::read(const std::string& prompt) {
  char* const typed = ::readline(prompt.c_str());
  if (!typed) return std::nullopt;
  std::string line = typed;
  std::free(typed);  // libedit's, by malloc
  if (!line.empty()) add_history(line.c_str());
  return line;
}

#else

LineEditor::LineEditor() = default;
LineEditor::~LineEditor() = default;

std::optional<std::string> LineEditor::read(const std::string& prompt) {
  std::fputs(prompt.c_str(), stderr);
  std::string line;
  if (!std::getline(std::cin, line)) return std::nullopt;
  return line;
}

#endif

}  // namespace ddl
