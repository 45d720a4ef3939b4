// What the ranks of a run settle before the first step: that each can begin, and that all would compute the same.
#pragma once

#include <exception>
#include <string>

#include "core/error.h"
#include "core/json.h"
#include "dist/comm.h"
#include "dist/gpu_choice.h"
#include "model/weights.h"
#include "train/run_config.h"

namespace ddl {

// An error that rank 0 reports for all of them.
struct SharedError : UserError {
  using UserError::UserError;
};

// The same error on every rank, told by rank 0.
[[noreturn]] void fail_on_all(const Comm& comm, const std::string& message);

// Every rank must have the same number of micro-batches. Throws UserError naming the numbers of ranks that would do.
void check_ranks(const RunConfig& config, int ranks);

// `mine`: what must be the same on all ranks. `failed`: what stopped this rank before it came here, or null. Returns on all
// ranks or throws on all: the own error, rank 0 that of another rank or the differences, the others SharedError.
void agree_to_begin(Comm& comm, const Json& mine, const std::exception_ptr& failed);

// What carries the sums of gradients; all ranks say where they compute. Throws as above.
Backend agree_on_backend(Comm& comm, const RankPlace& mine);

// The same numbers in every format, bit for bit. Throws as above.
void check_same_weights(Comm& comm, const Weights& weights);

}  // namespace ddl
