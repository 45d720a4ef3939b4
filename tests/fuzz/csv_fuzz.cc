// Any bytes as a CSV file, read in pieces of any size: rows or UserErrors, the same ones whatever the pieces,
// and what is written again from the rows reads as the same rows.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "data/csv_rows.h"
#include "fuzz/driver.h"

namespace {

using Rows = std::vector<std::vector<std::string>>;

Rows rows_of(std::string_view text, std::size_t piece, bool& wrong) {
  std::size_t at = 0;
  ddl::CsvRows reader(
      [&](char* out, std::size_t room) {
        const std::size_t count = std::min({piece, room, text.size() - at});
        std::memcpy(out, text.data() + at, count);
        at += count;
        return count;
      },
      ',');
  Rows rows;
  std::vector<std::string> fields;
  for (std::size_t calls = 0;; ++calls) {
    if (calls > text.size() + 2) std::abort();  // every call moves on
    try {
      if (!reader.next(fields)) return rows;
      if (fields.empty()) std::abort();
      rows.push_back(fields);
    } catch (const ddl::UserError&) {
      wrong = true;
    }
  }
}

std::string written(const Rows& rows) {
  std::string text;
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      text += i ? ",\"" : "\"";
      for (const char c : row[i]) text += c == '"' ? std::string("\"\"") : std::string(1, c);
      text += '"';
    }
    text += "\r\n";
  }
  return text;
}

}  // namespace

std::vector<std::string> fuzz_seeds() {
  return {"id,text\n1,hello\n2,\"a, \"\"b\"\"\nand c\"\r\n\n3,\n", "\xef\xbb\xbftext\n\"\"\n\"x\"y\nz\"z\n",
          "a,b\n\"never ends,\n"};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  bool wrong = false, also_wrong = false, wrong_again = false;
  const Rows rows = rows_of(text, 1 << 16, wrong);
  if (rows != rows_of(text, 3, also_wrong) || wrong != also_wrong) std::abort();
  if (rows_of(written(rows), 7, wrong_again) != rows || wrong_again) std::abort();
  return 0;
}
