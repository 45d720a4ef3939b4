#include "core/exec.h"

#include <omp.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>

namespace ddl {

namespace {
constexpr int kMaxThreads = 1024;
}

Exec default_exec() {
  Exec ex;
  ex.threads = std::max(1, omp_get_num_procs());
  if (const char* text = std::getenv("DDL_THREADS")) {
    const char* end = text + std::strlen(text);
    const auto [stop, error] = std::from_chars(text, end, ex.threads);
    if (error != std::errc() || stop != end || ex.threads < 1 || ex.threads > kMaxThreads)
      throw UserError("DDL_THREADS: expected a whole number from 1 to {}, found '{}'", kMaxThreads, text);
  }
  return ex;
}

void parallel_for(Index count, const Exec& ex, FunctionRef<void(Index)> body) {
  const int threads = static_cast<int>(std::min<Index>(ex.threads, count));
  if (threads <= 1 || omp_in_parallel()) {
    for (Index i = 0; i < count; ++i) body(i);
    return;
  }
  // An exception may not leave an OpenMP region: keep the first one and throw it after the loop.
  std::exception_ptr first;
  std::mutex guard;
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
  for (Index i = 0; i < count; ++i) {
    try {
      body(i);
    } catch (...) {
      const std::lock_guard lock(guard);
      if (!first) first = std::current_exception();
    }
  }
  if (first) std::rethrow_exception(first);
}

void parallel_chunks(Index count, Index grain, const Exec& ex, FunctionRef<void(Index, Index)> body) {
  DDL_CHECK(grain > 0, "grain {}", grain);
  parallel_for(ceil_div(count, grain), ex, [&](Index chunk) {
    const Index begin = chunk * grain;
    body(begin, std::min(count, begin + grain));
  });
}

void set_library_threads(const Exec& ex) {
  if (!omp_in_parallel() && omp_get_max_threads() != ex.threads) omp_set_num_threads(ex.threads);
}

}  // namespace ddl
