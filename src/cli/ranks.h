// Commands on several ranks: --ranks starts them on this machine, or a launcher has (dist/launch.h).
#pragma once

#include <memory>
#include <utility>

#include "cli/command_line.h"
#include "core/exec.h"
#include "dist/comm.h"
#include "dist/launch.h"
#include "train/handshake.h"

namespace ddl {

void add_ranks_option(Command command, Index& ranks);

// The threads of this machine that are this rank's.
Exec exec_of(const Launch& launch);

class Ranks {
 public:
  // `asked`: by --ranks; 0 where it was not given. Where it asks for ranks that nobody has started, starts
  // them, waits for them and throws ExitWithCode. Otherwise connects with the others.
  explicit Ranks(Index asked);

  const Launch& launch() const { return launch_; }
  Comm& comm() const { return *comm_; }
  Exec exec() const { return exec_of(launch_); }

  // An error that concerns all ranks is told by rank 0 alone.
  template <class Body>
  auto reporting_once(Body&& body) const {
    try {
      return std::forward<Body>(body)();
    } catch (const SharedError&) {
      throw ExitWithCode(2);
    }
  }

 private:
  const Launch launch_;
  std::shared_ptr<Comm> comm_;
};

}  // namespace ddl
