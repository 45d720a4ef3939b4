// What tells one model's scores from another's.
#pragma once

#include <string>

#include "data/tokenizer.h"

namespace ddl {

// Of the configuration, the tokenizer and the weights in a folder; 64 hex digits. `other`: a tokenizer that
// is used in place of the folder's.
std::string hash_model_folder(const std::string& folder, const std::string& precision,
                              const Tokenizer* other = nullptr);

}  // namespace ddl
