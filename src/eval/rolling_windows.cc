#include "eval/rolling_windows.h"

#include <algorithm>

namespace ddl {

void RollingWindows::add(std::int32_t token, Emit emit) {
  tokens_.push_back(token);
  if (std::ssize(tokens_) - scored_ == context_) emit_window(1, emit);
}

void RollingWindows::finish(Emit emit) {
  const Index fresh = std::ssize(tokens_) - scored_;
  if (fresh > 0) emit_window(std::min(scored_, context_ - fresh + 1), emit);
}

// The new tokens, after the last `before` of the old ones.
void RollingWindows::emit_window(Index before, Emit emit) {
  const auto fresh = tokens_.begin() + scored_;
  emit({{fresh - before, fresh}, {fresh, tokens_.end()}});
  if (std::ssize(tokens_) > context_) tokens_.erase(tokens_.begin(), tokens_.end() - context_);
  scored_ = std::ssize(tokens_);
}

}  // namespace ddl
