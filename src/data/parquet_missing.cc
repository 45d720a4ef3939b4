// Built in place of the readers through Apache Arrow where its C++ libraries were not found.
#include <memory>
#include <string>

#include "core/error.h"
#include "core/function_ref.h"
#include "core/json.h"
#include "data/document_source.h"
#include "data/parquet_rows.h"

namespace ddl {
namespace {

[[noreturn]] void refuse(const std::string& path) {
  throw UserError(
      "{}: this program was built without Parquet; run: ./ddl setup parquet (or convert the file to JSON "
      "Lines)",
      path);
}

}  // namespace

bool parquet_is_built_in() { return false; }

std::unique_ptr<DocumentSource> open_parquet_source(const std::string& path, const CorpusOptions&, BadRows&) {
  refuse(path);
}

void read_parquet_rows(const std::string& path, FunctionRef<void(Json&)>) { refuse(path); }

}  // namespace ddl
