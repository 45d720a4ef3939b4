// A Parquet file as rows with all their columns, for small tables; a corpus of text goes through corpus.h.
#pragma once

#include <string>

#include "core/function_ref.h"
#include "core/record.h"

namespace ddl {

// Calls on_row for each row, in order. Strings, whole numbers, fractions and booleans, and lists and structs
// of them (a list of structs comes as a struct of lists); columns of other types are left out. Throws
// UserError naming the file; where the program was built without Apache Arrow, saying how to get it.
void read_parquet_rows(const std::string& path, FunctionRef<void(Json&)> on_row);

}  // namespace ddl
