// Sums over tokens whose bits do not depend on the number of threads: the tokens are cut into a fixed number
// of parts, each part is summed into a row of its own, and the rows are added in order.
#pragma once

#include "core/exec.h"
#include "core/index.h"

namespace ddl {

inline constexpr Index kSumParts = 32;
inline constexpr Index kSumGrain = 2048;  // elements of a row per work item, when rows are added

// Tokens per work item where tokens are independent: long enough for the hardware's prefetch, short enough to
// share the work evenly.
inline constexpr Index kTokensPerTask = 64;
// The same in elements, where a token may have any number of them.
inline constexpr Index kElementsPerTask = 16384;

// Part p of n tokens is [part_begin(n, p), part_begin(n, p + 1)).
inline Index part_begin(Index n, Index part) { return n * part / kSumParts; }

// dst[i] += rows[p * stride + i]   for i < count, over the parts p = 0, 1, ... that hold any of the n tokens
// Does nothing where dst is null.
inline void add_parts_in_order(float* dst, const float* rows, Index stride, Index count, Index n,
                               const Exec& ex) {
  if (!dst) return;
  parallel_chunks(count, kSumGrain, ex, [&](Index begin, Index end) {
    for (Index p = 0; p < kSumParts; ++p) {
      if (part_begin(n, p) == part_begin(n, p + 1)) continue;  // nothing was written to this row
      const float* row = rows + p * stride;
      for (Index i = begin; i < end; ++i) dst[i] += row[i];
    }
  });
}

}  // namespace ddl
