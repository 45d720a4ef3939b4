// What runs recorded, as a table for other programs: a row per run and step, a column per number.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/index.h"

namespace ddl {

// Columns of a record of a step have its names: loss, lr, grad_norm, tokens, ... Those of a validation begin with
// "validation_", those of gates are "gate_S" (the mean at sublayer S).
struct MetricsTable {
  struct Row {
    std::string run;  // the shortest name that is its own
    Index step = 0;
    std::vector<std::optional<double>>
        values;  // as many as columns; none: the run did not record it at that step
  };
  std::vector<std::string> columns;
  std::vector<Row> rows;
};

// Of the runs among and below `paths`. `columns`: those that are wanted, in that order; empty: all. Rows without any
// wanted number are left out. Throws UserError where a column is in no run, with the nearest.
MetricsTable metrics_table(const std::vector<std::string>& paths, const std::vector<std::string>& columns);

std::string to_csv(const MetricsTable& table);
std::string to_json_lines(const MetricsTable& table);  // one object per row, without what is missing
std::string to_screen(const MetricsTable& table);

}  // namespace ddl
