// Ctrl-C and SIGTERM while training: the first asks for a stop, and says so on standard error; the second
// ends the program at once (nothing already saved is lost, because a checkpoint exists whole or not at all).
#pragma once

namespace ddl {

class StopSignals {
 public:
  StopSignals();   // takes over SIGINT and SIGTERM
  ~StopSignals();  // gives them back
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  int received() const;  // 0, SIGINT or SIGTERM
};

}  // namespace ddl
