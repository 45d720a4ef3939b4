// Sums over tokens that do not depend on the number of threads: the tokens are cut into a fixed number of
// pieces, each piece is summed alone into its own row, and the rows are added in order.
#pragma once

#include <algorithm>

#include "core/exec.h"

namespace ddl {

inline constexpr Index kPieces = 32;

// Where tokens are independent: long enough for the hardware's prefetch, short enough to share evenly.
inline constexpr Index kTokensPerTask = 64;

inline Index piece_begin(Index n, Index piece) { return n * piece / kPieces; }

// dst[i] += sum over pieces p = 0, 1, ... of partial[p * stride + i].
inline void join_pieces(float* dst, const float* partial, Index stride, Index count, Index n,
                        const Exec& ex) {
  if (!dst) return;
  parallel_chunks(count, 2048, ex, [&](Index begin, Index end) {
    for (Index p = 0; p < kPieces; ++p) {
      if (piece_begin(n, p) == piece_begin(n, p + 1)) continue;  // an empty piece wrote nothing
      const float* row = partial + p * stride;
      for (Index i = begin; i < end; ++i) dst[i] += row[i];
    }
  });
}

}  // namespace ddl
