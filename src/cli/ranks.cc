#include "cli/ranks.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "cli/local_ranks.h"
#include "core/error.h"
#include "core/plugin.h"

namespace ddl {
namespace {

constexpr Index kMostLocalRanks = 1024;

Launch launch_for(Index asked) {
  Launch launch = read_launch();
  if (asked == 0 || asked == launch.ranks) return launch;
  if (launch.ranks > 1)
    throw UserError("--ranks {}: {} has started {} already; leave --ranks out", asked, launch.launcher,
                    launch.ranks);
  if (const std::string problem = torch_plugin_problem(); !problem.empty())
    throw UserError("--ranks {}: {}", asked, problem);
  const int ranks = static_cast<int>(asked);
  throw ExitWithCode(run_local_ranks(ranks, std::max(1, default_exec().threads / ranks)));
}

}  // namespace

void add_ranks_option(Command command, Index& ranks) {
  command
      .add_option("--ranks", ranks,
                  "Processes on this machine that share the work (docs/scale.md; more machines: a launcher)")
      .range(1, kMostLocalRanks);
}

Exec exec_of(const Launch& launch) {
  Exec ex = default_exec();
  // A launcher may have bound each rank to cores of its own; otherwise they see all cores and share them.
  const long cores = ::sysconf(_SC_NPROCESSORS_ONLN);
  if (!std::getenv("DDL_THREADS") && static_cast<long>(ex.threads) * launch.local_ranks > cores)
    ex.threads = std::max(1, ex.threads / launch.local_ranks);
  return ex;
}

Ranks::Ranks(Index asked) : launch_(launch_for(asked)), comm_(connect(launch_)) {}

}  // namespace ddl
