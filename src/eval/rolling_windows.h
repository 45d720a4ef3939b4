// A text of any length, cut into requests so that each token is scored exactly once (the harness's
// loglikelihood_rolling with a context of one token): full windows of L new tokens, each after one token of
// what came before, and at the end a window that reaches back as far as L inputs allow.
//
//   L = 4, tokens 1 .. 10, begun by 0:      (0 | 1 2 3 4)   (4 | 5 6 7 8)   (6 7 8 | 9 10)
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/function_ref.h"
#include "core/index.h"
#include "eval/request.h"

namespace ddl {

class RollingWindows {
 public:
  using Emit = FunctionRef<void(ScoreRequest)>;

  // `begin` stands before the first token; `context` is L.
  RollingWindows(std::int32_t begin, Index context) : context_(context), tokens_{begin} {}

  void add(std::int32_t token, Emit emit);
  void finish(Emit emit);  // the text has ended

 private:
  void emit_window(Index before, Emit emit);

  Index context_;
  std::vector<std::int32_t> tokens_;  // the last that are scored, at most L, and the new ones
  Index scored_ = 1;
};

}  // namespace ddl
