// One record per event: a JSON object on one line. What a person sees on the screen is printed from the same
// record.
#pragma once

#include <cstdio>
#include <string>

#include "core/json.h"

namespace ddl {

// {"v":1,"event":"step", ...}
Json make_record(const std::string& event);

// Appends records to a file, one line each, flushed line by line: a reader that comes while a run goes on
// sees all records so far, and at most the last without its end.
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
