// ./ddl bench kernels: every kernel at the paper's small shapes and at tiny ones, and the machine's limits.
#pragma once

#include <string>

#include "core/exec.h"

namespace ddl {

struct KernelsBenchOptions {
  bool json = false;
  std::string only;  // run the kernels whose name contains this
};
void run_kernels_bench(const KernelsBenchOptions& options, const Exec& ex);

}  // namespace ddl
