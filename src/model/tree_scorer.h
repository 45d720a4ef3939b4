// Forward passes over a tree of tokens: sequences that share their beginnings, each distinct token computed
// once, and of each only as many logits as are asked for. Made for scoring: many sequences, no sampling.
//
// The tree is walked depth first in passes of a fixed number of tokens, cut wherever a pass is full; between
// passes only the path to the last token is kept, so memory does not depend on the size of the tree.
//
// On the native engine, what follows a token is a function of the tokens before it and the weights, to the last
// bit: not of the rest of the tree, the size of a pass or the number of threads (kernels/gemm.h,
// attention_paths.h). On torch it is so to rounding.
#pragma once

#include <cstdint>
#include <span>

#include "core/arena.h"
#include "core/exec.h"
#include "core/function_ref.h"
#include "model/config.h"
#include "model/next_token.h"

namespace ddl {

// Tokens one after another without a branch. A run follows the end of the last run before it in the walk
// whose depth is one less; at depth 0 it begins a sequence. Logits are computed from token `first_wanted` on.
struct TreeRun {
  Index depth = 0, position = 0;
  std::span<const std::int32_t> tokens;  // at least one
  Index first_wanted = 0;                // tokens.size(): none
};

struct TreeShape {
  Index batch_tokens = 1536;  // computed at a time; native: rounded up to whole blocks of the GEMM
  Index depths = 16;          // of runs
};

class TreeScorer {
 public:
  using Visit = FunctionRef<void(Index run, Index token, const NextToken& next)>;

  virtual ~TreeScorer() = default;
  virtual const ModelConfig& config() const = 0;
  virtual TreeShape shape() const = 0;
  virtual const Arena& arena() const = 0;

  // Visits every wanted token in the order of the runs. Throws UserError where a sequence is longer than the
  // model's context or a token is not in the vocabulary, before anything is computed.
  virtual void run(std::span<const TreeRun> runs, Visit visit, const Exec& ex) = 0;
};

// Throws UserError where a run's sequence is longer than the model's context or a token is not in the
// vocabulary.
void check_run(const TreeRun& run, Index depths, const ModelConfig& config);

}  // namespace ddl
