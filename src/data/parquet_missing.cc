// Built in place of parquet_arrow.cc where Apache Arrow's C++ libraries were not found.
#include "core/error.h"
#include "data/document_source.h"

namespace ddl {

bool parquet_is_built_in() { return false; }

std::unique_ptr<DocumentSource> open_parquet_source(const std::string& path, const CorpusOptions&, BadRows&) {
  throw UserError(
      "{}: this program was built without Parquet. Either install Apache Arrow's C++ libraries (packages "
      "libarrow-dev and libparquet-dev from https://arrow.apache.org/install/) and build again; or "
      "`pip install pyarrow` and configure with "
      "-DDDL_ARROW_ROOT=$(python3 -c 'import pyarrow; print(pyarrow.__path__[0])'); or convert the file to "
      "JSON Lines.",
      path);
}

}  // namespace ddl
