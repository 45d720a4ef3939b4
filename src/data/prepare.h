// From text to a dataset: tokenise, shuffle, hold out a validation split, write shards.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "core/exec.h"
#include "core/record.h"
#include "data/corpus.h"
#include "data/tokenizer.h"

namespace ddl {

struct PrepareOptions {
  std::vector<std::string> inputs;
  std::vector<std::string> val_inputs;  // the validation split; empty: val_fraction of the inputs
  std::string out;
  std::string name;  // of the shards; "": the last part of `out`
  CorpusOptions corpus;
  double val_fraction = 0.01;  // of the tokens
  std::uint64_t seed = 0;
  Index shard_tokens = 100'000'000;
  bool force = false;             // replace an existing dataset
  std::FILE* progress = nullptr;  // where the progress line goes
};

// Returns what it wrote to dataset.json. The result is a function of inputs, options and tokenizer: neither
// the number of threads nor anything else changes a byte.
//
// All work happens in the folder OUT.partial, which is renamed to OUT as the last step. After an error
// nothing is left. After a kill OUT.partial is left, marked as incomplete (Dataset::open refuses it); the
// next run clears it.
Json prepare_dataset(const PrepareOptions& options, const Tokenizer& tokenizer, const Exec& ex);

}  // namespace ddl
