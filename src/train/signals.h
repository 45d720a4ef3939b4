// Ctrl-C, SIGTERM and a closed terminal while training: the first asks for a stop, and says so on standard
// error; the second ends the program at once (nothing already saved is lost, because a checkpoint exists
// whole or not at all). A reader of standard output that leaves is no reason to stop.
#pragma once

#include "core/signal_stack.h"

namespace ddl {

class StopSignals {
 public:
  StopSignals();   // takes over SIGINT, SIGTERM and, unless under nohup, SIGHUP; ignores SIGPIPE
  ~StopSignals();  // gives them back
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // Several ranks stop behind a whole step, together, and one of them says so.
  static void stop_with_ranks(bool says_so);

  int received() const;  // 0, or the number of the first

 private:
  SignalStack stack_;  // before the handlers are there, until they are gone
};

}  // namespace ddl
