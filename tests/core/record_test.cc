// Records: a line each, whatever is in them.
#include "core/record.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "core/error.h"

namespace ddl {
namespace {

TEST(Record, OneLineEachAndBadNumbersAreNull) {
  const auto path = std::filesystem::temp_directory_path() / "ddl_record_test.jsonl";
  std::filesystem::remove(path);
  {
    RecordWriter writer(path.string());
    Json r = make_record("step");
    r["loss"] = std::nan("");
    r["text"] = "a\nb\xff";
    writer.write(r);
    writer.write(make_record("end"));
  }
  std::ifstream in(path);
  std::string first, second;
  std::getline(in, first);
  std::getline(in, second);
  EXPECT_EQ(parse_json(first)["loss"], nullptr);
  EXPECT_EQ(second, "{\"v\":1,\"event\":\"end\"}");
  std::filesystem::remove(path);
  EXPECT_THROW(RecordWriter("/nonexistent/folder/x.jsonl"), UserError);
}

TEST(Record, AFullDiskIsAnError) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "needs /dev/full";
  RecordWriter writer("/dev/full");
  EXPECT_THROW(writer.write(make_record("step")), UserError);
}

}  // namespace
}  // namespace ddl
