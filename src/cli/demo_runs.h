// ./ddl demo: from nothing to a trained pair of models in about two minutes, and what they learned.
#pragma once

#include <cstdint>
#include <string>

#include "core/exec.h"

namespace ddl {

struct DemoOptions {
  double minutes = 2;
  std::string out;  // empty: demo, or demo-2, demo-3, ... where that is there already
  std::uint64_t seed = 1;
};

// Generates stories, trains a tokenizer, then trains `baseline` and `ddl-cc` in turns, a step of one and a step of
// the other on the same batch, until the clock says that `minutes` are nearly over. Leaves OUT/baseline and
// OUT/ddl-cc as runs. Returns 0, or the signal that stopped it.
int run_demo(const DemoOptions& options, const Exec& ex);

}  // namespace ddl
