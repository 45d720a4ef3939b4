// What a dataset holds, counted: for `ddl data info`.
#pragma once

#include <string>

#include "core/exec.h"
#include "core/record.h"
#include "data/dataset.h"
#include "data/tokenizer.h"

namespace ddl {

// Documents, tokens, vocabulary seen, answers, and the beginning of each split in words (in ids where no
// tokenizer is at hand; `tokenizer` may be null).
Json describe_dataset(const Dataset& dataset, const Tokenizer* tokenizer, const Exec& ex);
std::string dataset_screen(const Json& description);

}  // namespace ddl
