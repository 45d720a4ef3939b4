// How to run: passed to everything that computes. (The instruction set is the process's: kernels/isa.h.)
#pragma once

#include <string>
#include <string_view>

#include "core/function_ref.h"
#include "core/index.h"

namespace ddl {

class Profiler;

struct Exec {
  int threads = 1;
  Profiler* profiler = nullptr;  // optional; kernels are timed by name when set
};

// As many threads as the machine offers (or DDL_THREADS says). Throws UserError on a bad DDL_THREADS.
Exec default_exec();

// Calls body(i) for i in [0, count), spread over ex.threads. All parallel computation of the project starts
// here. Work items are claimed dynamically, so body(i) must depend on i alone: results then do not depend on
// the number of threads. Calls from inside a body run serially (no nesting).
void parallel_for(Index count, const Exec& ex, FunctionRef<void(Index)> body);

// The same over ranges: splits [0, count) into fixed pieces of `grain` and calls body(begin, end) for each.
void parallel_chunks(Index count, Index grain, const Exec& ex, FunctionRef<void(Index, Index)> body);

// Tells libraries with OpenMP loops of their own (oneDNN) how many threads to use. Inside a parallel_for this
// changes nothing: they use one.
void set_library_threads(const Exec& ex);

}  // namespace ddl
