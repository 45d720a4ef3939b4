#include "core/record.h"

#include <cerrno>
#include <cstring>

#include "core/error.h"

namespace ddl {

Json make_record(const std::string& event) { return Json{{"v", 1}, {"event", event}}; }

RecordWriter::RecordWriter(const std::string& path) : path_(path), file_(std::fopen(path.c_str(), "ae")) {
  if (!file_) throw UserError("{}: cannot be opened for writing ({})", path, std::strerror(errno));
}

RecordWriter::~RecordWriter() { std::fclose(file_); }

void RecordWriter::write(const Json& record) {
  const std::string line = to_line(record) + "\n";
  if (std::fwrite(line.data(), 1, line.size(), file_) != line.size() || std::fflush(file_) != 0)
    throw UserError("{}: a record could not be written ({})", path_, std::strerror(errno));
}

}  // namespace ddl
