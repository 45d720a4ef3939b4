// Starts this program's own command as several ranks on this machine, and waits for them.
#pragma once

namespace ddl {

// Returns the exit code of the whole: rank 0's, or that of another rank that failed. Stop signals are passed
// on to all. Where a rank fails, the others notice; those that have not ended a minute later are killed.
// Throws UserError where it cannot begin.
int run_local_ranks(int ranks, int threads_each);

}  // namespace ddl
