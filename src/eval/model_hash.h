// What tells one model's scores from another's.
#pragma once

#include <string>

namespace ddl {

// Of the configuration, the tokenizer and the weights in a folder; 64 hex digits.
std::string hash_model_folder(const std::string& folder, const std::string& precision);

}  // namespace ddl
