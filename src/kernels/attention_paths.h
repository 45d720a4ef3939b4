// Attention for sequences that share their beginnings: the keys and values a query sees lie in pieces, those
// of the beginning once for all sequences that have it.
//
//   s_ij = q_i.k_j / sqrt(K)        o_i = sum_j softmax_j(s_i)_j v_j        over i's path up to i itself
//
// Every score and every output is one chain of sums in the order of the path, whatever is computed beside it.
// So a query's bits depend on its path alone: not on how that lies in pieces, nor on the other queries, nor
// on the number of threads.
#pragma once

#include <span>

#include "core/bf16.h"
#include "core/exec.h"

namespace ddl {

// Rows of H heads of K numbers, one token after another.
template <class Act>
struct KeyRows {
  const Act *k, *v;
  Index ld_k, ld_v, count;
};

// `count` tokens of one path, one after another, and the pieces of all keys the last of them sees. Rows of q
// and o lie `ld` apart.
template <class Act>
struct PathQueries {
  Act* o;
  const Act* q;
  Index ld, count;
  std::span<const KeyRows<Act>> keys;
};

inline constexpr Index kPathQueries = 16;  // at most so many in one PathQueries

// Overwrites every o. No path is longer than `longest`. scratch: attention_paths_scratch() floats.
template <class Act>
void attention_paths(float* scratch, std::span<const PathQueries<Act>> blocks, Index longest, Index H,
                     Index K, const Exec& ex);

Index attention_paths_scratch(Index longest, Index K, int threads);

}  // namespace ddl
