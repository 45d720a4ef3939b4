// The rows of a task's files: JSON Lines, a JSON array (both also .gz or .zst), or Parquet. Where the authors
// released the answers in a separate file of labels, they are added to the rows.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/function_ref.h"
#include "core/index.h"
#include "core/record.h"
#include "eval/task.h"

namespace ddl {

// Calls on_row(row, number) for each row of a JSON text: one object per line, or one array of objects.
// Numbers are lines from 1, in an array rows from 1. Throws UserError("row N: ...") where it is neither.
void parse_json_rows(std::string_view text, FunctionRef<void(Json&, Index)> on_row);

// All documents of a split, in the order of its files in FOLDER/<task>/. Throws UserError naming the task and
// what was looked for, or the task, the file and the row that is wrong.
std::vector<TaskDocument> read_split(const Task& task, const std::string& folder, const std::string& split);

}  // namespace ddl
