// A line from a person at a terminal: with editing and history where the program was built with libedit, plain
// otherwise.
#pragma once

#include <optional>
#include <string>

namespace ddl {

class LineEditor {
 public:
  LineEditor();   // takes up the history of earlier sessions
  ~LineEditor();  // keeps it for later ones
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  // Without its line break; nothing at the end (Ctrl-D). The prompt goes to standard error.
  std::optional<std::string> read(const std::string& prompt);
};

// Where the history lies: $XDG_STATE_HOME/ddl/history, or ~/.local/state/ddl/history; "" where neither is known.
std::string history_file();

}  // namespace ddl
