// One record per event: a JSON object on one line. The text on the screen is printed from the same record.
#pragma once

#include <cstdio>
#include <string>

#include "core/json.h"

namespace ddl {

// {"v":1,"event":"step", ...}
Json make_record(const std::string& event);

// Appends records to a file, one line each, flushed line by line. A reader during a run sees all records so
// far; at most the last one is incomplete.
class RecordWriter {
 public:
  explicit RecordWriter(const std::string& path);  // throws UserError where the file cannot be opened
  ~RecordWriter();
  RecordWriter(const RecordWriter&) = delete;
  RecordWriter& operator=(const RecordWriter&) = delete;
  void write(const Json& record);  // throws UserError when the disk is full

 private:
  std::string path_;
  std::FILE* file_;
};

}  // namespace ddl
