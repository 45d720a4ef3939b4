// One record per event: a JSON object on one line. What a person sees on the screen is printed from the same
// record.
#pragma once

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

namespace ddl {

using Json = nlohmann::ordered_json;  // keeps the order fields were written in

// {"v":1,"event":"step", ...}
Json make_record(const std::string& event);

// Appends records to a file, one line each, flushed line by line so that a reader never sees half of one.
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

// A record's text: full precision; NaN and infinities become null, bytes that are not UTF-8 are replaced.
std::string to_line(const Json& record);

}  // namespace ddl
