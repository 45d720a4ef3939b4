// The walk of a scorer over a tree of tokens (tree_scorer.h): which tokens share a pass, whose past is where.
//
// A pass is full at a fixed number of tokens. What passes on to the next one is the path to its last token, which the
// scorer keeps: a run that continues the path, or branches off it, finds its past there.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/function_ref.h"
#include "model/config.h"
#include "model/tokens.h"
#include "model/tree_scorer.h"

namespace ddl {

class TreeWalk {
 public:
  TreeWalk(const ModelConfig& config, const TreeShape& shape) : config_(config), shape_(shape) {}

  // entered(tokens): these of a run are in the pass now, as its last span.
  // pass(): the pass is full, or the last one. It is to be computed, and its path kept.
  // Throws UserError as TreeScorer::run does.
  void run(std::span<const TreeRun> runs, FunctionRef<void(std::span<const std::int32_t> tokens)> entered,
           FunctionRef<void()> pass);

  // Of the path to the last token: a span of this pass. What lies before the first is kept from earlier passes.
  struct Piece {
    Index span, row, position, count;
    Index end() const { return position + count; }
  };
  // A token whose logits are wanted.
  struct Wanted {
    Index row, run, token;
  };
  Index tokens() const { return tokens_; }  // of this pass so far
  const std::vector<Span>& spans() const { return spans_; }
  const std::vector<Piece>& path() const { return path_; }
  const std::vector<Wanted>& wanted() const { return wanted_; }
  Index kept() const { return kept_; }  // tokens of the path that earlier passes left
  Index past() const { return past_; }  // the same, when this pass began

 private:
  void enter(const TreeRun& run, Index r, Index done, Index count);
  void begin_pass(Index kept);

  const ModelConfig config_;
  const TreeShape shape_;
  Index tokens_ = 0, kept_ = 0, past_ = 0;
  std::vector<Span> spans_;
  std::vector<Piece> path_;
  std::vector<Wanted> wanted_;
};

}  // namespace ddl
