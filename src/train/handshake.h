// What the ranks of a run settle before the first step: that each can begin, and that all would compute the same.
#pragma once

#include <exception>
#include <string>

#include "core/error.h"
#include "core/json.h"
#include "dist/comm.h"
#include "model/weights.h"
#include "train/run_config.h"

namespace ddl {

// An error that rank 0 reports for all of them.
struct SharedError : UserError {
  using UserError::UserError;
};

// Every rank must have the same number of micro-batches. Throws UserError naming the numbers of ranks that would do.
void check_ranks(const RunConfig& config, int ranks);

// `mine`: what must be the same on all ranks. `failed`: what stopped this rank before it came here, or null. Returns on all
// ranks or throws on all: the own error, rank 0 that of another rank or the differences, the others SharedError.
void agree_to_begin(Comm& comm, const Json& mine, const std::exception_ptr& failed);

// The same numbers in every format, bit for bit. Throws as above.
void check_same_weights(Comm& comm, const Weights& weights);

}  // namespace ddl
