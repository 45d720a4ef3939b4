// How fast the loader fills batches, compared with what training consumes.
#pragma once

#include <string>

#include "core/index.h"

namespace ddl {

struct LoaderBenchOptions {
  std::string data;           // a dataset folder; "": random tokens in a temporary one
  Index tokens = 50'000'000;  // of that temporary dataset
  Index rows = 8, context = 1024;
  double seconds = 1.0;              // for each order
  double consumed_tokens_per_s = 0;  // by training, to compare with; 0: not known
  bool json = false;
};

// Prints a table, or one JSON record for each order.
void run_loader_bench(const LoaderBenchOptions& options);

}  // namespace ddl
