#include "model/tree_walk.h"

#include <algorithm>

#include "core/error.h"

namespace ddl {

void TreeWalk::run(std::span<const TreeRun> runs,
                   FunctionRef<void(std::span<const std::int32_t> tokens)> entered,
                   FunctionRef<void()> pass) {
  for (const TreeRun& run : runs) check_run(run, shape_.depths, config_);
  const auto finish = [&] {
    pass();
    begin_pass(path_.back().end());
  };
  begin_pass(0);
  for (Index r = 0; r < std::ssize(runs); ++r) {
    const std::span<const std::int32_t> all = runs[r].tokens;
    for (Index done = 0; done < std::ssize(all);) {
      const Index count = std::min(std::ssize(all) - done, shape_.batch_tokens - tokens_);
      enter(runs[r], r, done, count);
      entered(all.subspan(static_cast<std::size_t>(done), static_cast<std::size_t>(count)));
      done += count;
      if (tokens_ == shape_.batch_tokens) finish();
    }
  }
  if (tokens_ > 0) finish();
}

// Adds tokens [done, done + count) of a run to this pass.
void TreeWalk::enter(const TreeRun& run, Index r, Index done, Index count) {
  const Index position = run.position + done;
  while (!path_.empty() && path_.back().position >= position) path_.pop_back();
  DDL_CHECK(path_.empty() ? position <= kept_ : path_.back().end() == position,
            "a run at position {} does not follow the one before it", position);
  if (path_.empty()) kept_ = position;

  Span span{.slot = run.depth, .position = position, .count = count};
  if (!path_.empty())
    span.parent = path_.back().span;
  else if (done == 0 && position > 0)
    span.from = run.depth - 1;
  path_.push_back({std::ssize(spans_), tokens_, position, count});
  spans_.push_back(span);
  for (Index i = std::max(done, run.first_wanted); i < done + count; ++i)
    wanted_.push_back({tokens_ + i - done, r, i});
  tokens_ += count;
}

void TreeWalk::begin_pass(Index kept) {
  tokens_ = 0, kept_ = past_ = kept;
  spans_.clear(), path_.clear(), wanted_.clear();
}

}  // namespace ddl
