// Requests as a tree: what they share at their beginnings is there once. Which requests ask for what follows
// a token is known run by run.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/index.h"
#include "eval/request.h"
#include "model/tree_scorer.h"

namespace ddl {

class RequestTree {
 public:
  // Of context and continuation the last `context` + 1 tokens count, all but the last of which go through the
  // model. Runs lie at most `depths` deep; what branches deeper is not shared. Throws UserError where a
  // continuation alone is longer than the context. The requests need not outlive the tree.
  RequestTree(std::span<const ScoreRequest> requests, Index context, Index depths);
  RequestTree(const RequestTree&) = delete;  // runs point into it
  RequestTree& operator=(const RequestTree&) = delete;

  const std::vector<TreeRun>& runs() const { return runs_; }
  Index tokens() const { return tokens_; }  // of all runs

  struct Asked {
    Index request;
    std::int32_t token;  // how likely is it?
    bool last;           // of its continuation
  };
  // ask(Asked) for everything that is asked of token `token` of a run.
  template <class Ask>
  void for_each_asked(Index run, Index token, const Ask& ask) const {
    const Index position = runs_[run].position + token;
    for (Index i = members_[run].begin; i < members_[run].end; ++i)
      if (const Sequence& s = sequences_[i]; position + 1 >= s.first_scored)
        ask(Asked{s.request, s.tokens[position + 1], position + 1 == s.length()});
  }

 private:
  struct Sequence {
    Index request = 0;
    std::vector<std::int32_t> tokens;
    Index first_scored = 0;
    Index length() const { return std::ssize(tokens) - 1; }  // of what goes through the model
    std::span<const std::int32_t> fed() const { return std::span(tokens).first(tokens.size() - 1); }
  };
  struct Members {
    Index begin, end;
  };

  void add_branches(Members members, Index position, Index depth);
  void add_run(Members members, Index position, Index end, Index depth);

  Index depths_;
  std::vector<Sequence> sequences_;  // sorted
  std::vector<Index> shared_;        // tokens that sequence i begins with like sequence i - 1
  std::vector<TreeRun> runs_;
  std::vector<Members> members_;  // of each run: the sequences it is part of
  Index tokens_ = 0;
};

}  // namespace ddl
