// Tokenizers that a user has given a name once (`ddl tokenizer add gpt2 FILES`), kept in
// $XDG_DATA_HOME/ddl/tokenizers, which is ~/.local/share/ddl/tokenizers by default. load_tokenizer knows them
// by that name.
#pragma once

#include <string>
#include <vector>

#include "data/tokenizer.h"

namespace ddl {

// Of one that is there; "" where there is none of that name.
std::string stored_tokenizer_folder(const std::string& name);
std::vector<std::string> stored_tokenizer_names();

// From one path as load_tokenizer takes it, or from a vocabulary and its merges under any names (*.json and
// the other). Throws UserError where the name cannot be one, and where the files are no tokenizer. Replaces
// one of that name. Returns its folder.
std::string store_tokenizer(const std::string& name, const std::vector<std::string>& files);

}  // namespace ddl
