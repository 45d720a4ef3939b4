// Corpora made by a program: text in which things change, with questions whose answers are known. Useful with
// no data at all, and to test whether a model keeps the current state. Document i is a function of (seed, i).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/exec.h"
#include "core/function_ref.h"
#include "core/index.h"
#include "data/corpus.h"

namespace ddl {

struct GeneratedDocument {
  std::string text;
  std::vector<ByteSpan> answers;  // bytes of `text`, in order
};

// A short English children's story: people go about, take, hide, give and paint things, and feel differently
// as the day goes; some questions are asked on the way, the others at the end.
GeneratedDocument generate_story(std::uint64_t seed, Index i);

// "a=3 b=7 a=5 b?7 a?5": assignments to keys, and queries answered with the latest value.
struct OverwriteOptions {
  Index statements = 40;        // assignments and queries of an episode
  Index keys = 8;               // named a ... z, aa ... zz
  Index values = 10;            // 0 ... values - 1
  double overwrite_rate = 0.5;  // of the assignments; each changes the value
  double query_rate = 0.25;     // of the statements; the last is a query always
  void check() const;           // throws UserError where a value is out of range
};
GeneratedDocument generate_overwrite(const OverwriteOptions& options, std::uint64_t seed, Index i);

// JSON Lines, {"text": ..., "answers": [[begin, end], ...]}; `path` "-" is standard output.
void write_generated(const std::string& path, Index documents, const Exec& ex,
                     FunctionRef<GeneratedDocument(Index)> make);

}  // namespace ddl
