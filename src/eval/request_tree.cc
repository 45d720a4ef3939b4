#include "eval/request_tree.h"

#include <algorithm>
#include <cstddef>

#include "core/error.h"
#include "core/index.h"

namespace ddl {

RequestTree::RequestTree(std::span<const ScoreRequest> requests, Index context, Index depths)
    : depths_(depths) {
  for (Index r = 0; r < std::ssize(requests); ++r) {
    const auto& [before, continuation] = requests[r];
    const Index scored = std::ssize(continuation), total = std::ssize(before) + scored;
    if (scored == 0) continue;  // certain
    DDL_CHECK(!before.empty(), "request {} has no context", r);
    if (scored > context)
      throw UserError("a continuation of {} tokens cannot be scored by a model with a context of {}", scored,
                      context);
    const Index kept = std::min(total, context + 1);
    Sequence s{r, {}, kept - scored};
    s.tokens.assign(before.end() - (kept - scored), before.end());
    s.tokens.insert(s.tokens.end(), continuation.begin(), continuation.end());
    sequences_.push_back(std::move(s));
  }
  std::sort(sequences_.begin(), sequences_.end(), [](const Sequence& a, const Sequence& b) {
    return std::lexicographical_compare(a.fed().begin(), a.fed().end(), b.fed().begin(), b.fed().end());
  });
  shared_.assign(sequences_.size(), 0);
  for (std::size_t i = 1; i < sequences_.size(); ++i) {
    const auto a = sequences_[i - 1].fed(), b = sequences_[i].fed();
    shared_[i] = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
  }
  add_branches({0, std::ssize(sequences_)}, 0, 0);
}

// The members share their first `position` tokens, and all are longer. Adds a run for each
// different next token.
void RequestTree::add_branches(Members members, Index position, Index depth) {
  if (depth + 1 == depths_) {
    for (Index i = members.begin; i < members.end; ++i)
      add_run({i, i + 1}, position, sequences_[i].length(), depth);
    return;
  }
  for (Index begin = members.begin, end; begin < members.end; begin = end) {
    Index branch = sequences_[begin].length();
    for (end = begin + 1; end < members.end && shared_[end] > position; ++end)
      branch = std::min(branch, shared_[end]);
    add_run({begin, end}, position, branch, depth);
    Index longer = begin;  // sorted: those that end here come first
    while (longer < end && sequences_[longer].length() == branch) ++longer;
    add_branches({longer, end}, branch, depth + 1);
  }
}

void RequestTree::add_run(Members members, Index position, Index end, Index depth) {
  Index first_asked = end;
  for (Index i = members.begin; i < members.end; ++i)
    first_asked = std::min(first_asked, sequences_[i].first_scored - 1);
  runs_.push_back({.depth = depth,
                   .position = position,
                   .tokens = sequences_[members.begin].fed().subspan(
                       static_cast<std::size_t>(position), static_cast<std::size_t>(end - position)),
                   .first_wanted = std::max<Index>(0, first_asked - position)});
  members_.push_back(members);
  tokens_ += end - position;
}

}  // namespace ddl
