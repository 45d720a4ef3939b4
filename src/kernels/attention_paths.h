// Attention for sequences that share their beginnings. The keys and values of a query lie in several pieces;
// the piece of a shared beginning is stored once for all its sequences. With j over the path of i, up to i:
//
//   s_ij = q_i . k_j / sqrt(K)
//   o_i  = sum_j softmax(s_i)_j v_j
//
// Every score and every output is summed in the order of the path. So a query's bits depend on its path
// alone: not on how the path is cut into pieces, nor on the other queries, nor on the number of threads.
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

inline constexpr Index kPathQueries = 16;  // the largest `count` of a PathQueries

// Overwrites every o. No path is longer than `longest`. scratch: attention_paths_scratch() floats.
template <class Act>
void attention_paths(float* scratch, std::span<const PathQueries<Act>> blocks, Index longest, Index H,
                     Index K, const Exec& ex);

Index attention_paths_scratch(Index longest, Index K, int threads);

}  // namespace ddl
