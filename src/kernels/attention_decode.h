// Attention of single queries over a cache of keys and values. Its cost is reading the cache, so each key and
// value is read once: one pass of dot products, one pass of weighted sums. Over the query's `keys` rows:
//
//   s_j = q . k_j / sqrt(K)
//   o   = sum_j softmax(s)_j v_j
#pragma once

#include "core/bf16.h"
#include "core/exec.h"

namespace ddl {

// A query and the rows of its sequence it sees, H heads of K numbers each. Rows of k and v lie `ld` apart.
template <class Act>
struct CachedQuery {
  Act* o_C;
  const Act *q_C, *k, *v;
  Index ld, keys;
};

// Overwrites every query's o_C. scratch: attention_decode_scratch() floats. A query's result depends neither
// on the other queries nor on the number of threads.
template <class Act>
void attention_decode(float* scratch, const CachedQuery<Act>* queries, Index count, Index H, Index K,
                      const Exec& ex);

Index attention_decode_scratch(Index queries, Index longest, Index H, Index K);

}  // namespace ddl
