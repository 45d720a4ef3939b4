// ./ddl bench serve: streams through the server and through the decoder alone, in turns.
#pragma once

#include <string>

#include "core/exec.h"

namespace ddl {

struct ServeBenchOptions {
  std::string preset = "mini", residual = "ddl-cc", precision = "auto";
  Index streams = 16;
  Index prompt = 64, tokens = 64;  // of each stream
  Index rounds = 3;
  bool json = false;
};
void run_serve_bench(const ServeBenchOptions& options, const Exec& ex);

}  // namespace ddl
