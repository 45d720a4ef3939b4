// ./ddl bench step: one training step (forward, backward, AdamW) per residual rule, compared with the
// time that its matrix multiplications alone would take.
#pragma once

#include <string>
#include <vector>

#include "core/exec.h"

namespace ddl {

struct StepBenchOptions {
  std::string preset = "small";
  std::vector<std::string> residuals = {"all"};
  std::string precision = "auto";
  Index batch = 4;
  Index context = 0;  // 0: the preset's
  Index steps = 3;
  bool profile = false;
  bool json = false;
};
void run_step_bench(const StepBenchOptions& options, const Exec& ex);

}  // namespace ddl
