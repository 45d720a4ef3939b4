// Accuracies in the paper's tables ("Deep Delta Learning", tables of zero- and one-shot evaluation), to be
// compared with ours.
#pragma once

#include <array>
#include <span>

#include "core/index.h"

namespace ddl {

struct PaperRow {
  const char* residual;  // under our name
  const char* size;      // small: 124M, medium: 353M; trained on 49B tokens of FineWeb-Edu
  Index shots;
  std::array<double, 8> percent;  // of paper_tasks()
  double average;                 // as printed
};

std::span<const PaperRow> paper_results();

}  // namespace ddl
