// One row of a JSON Lines file, scanned for the fields a corpus needs without building the rest.
//
// Not the JSON library the project uses elsewhere, for two reasons: bytes that are not UTF-8 are data here
// and must pass, and a row is read once at several hundred MB/s without a tree. A test compares it with the
// library on everything that the library accepts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace ddl {

struct JsonRow {
  std::string text;                 // the wanted field, unescaped
  std::string_view answers;         // the raw JSON of the field "answers"; empty where there is none
  std::vector<std::string> fields;  // all names seen, for messages; at most 20
};

// Throws UserError("column 17: ..."), columns counted in bytes from 1; the caller adds file and line.
// Raw bytes of strings pass as they are; an unpaired \ud800 escape becomes U+FFFD. The last of several fields
// of one name counts, as in other readers.
void parse_json_row(std::string_view line, std::string_view field, JsonRow& row);

}  // namespace ddl
