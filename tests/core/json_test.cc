// Reading JSON of others: the library is the definition of what is JSON, except that nesting has a limit.
#include "core/json.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <ctime>

namespace ddl {
namespace {

TEST(Json, ReadsWhatTheLibraryReads) {
  const char* texts[] = {"null",
                         "true",
                         "-3",
                         "18446744073709551615",
                         "1e-3",
                         "\"\\u00e9\\n\"",
                         "[]",
                         "{}",
                         "[[],{},[1,[2,{\"a\":[3]}]]]",
                         R"({"b":1,"a":{"d":[true,null],"c":"x"}})",
                         R"({"a":1,"b":2,"a":3,"c":4,"b":{"a":5}})",
                         "",
                         "[1,",
                         "{\"a\":}",
                         "1 2",
                         "\"\xff\"",
                         "1e999"};
  for (const char* text : texts) {
    const Json expected = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    const Json found = parse_json(text);
    EXPECT_EQ(found.is_discarded(), expected.is_discarded()) << text;
    // As text, so that the order of fields counts too.
    if (!expected.is_discarded()) {
      EXPECT_EQ(to_line(found), to_line(expected)) << text;
    }
  }
}

TEST(Json, SaysWhereItIsWrong) {
  std::string error;
  parse_json("{\"a\": 1,\n \"b\" 2}", &error);
  EXPECT_NE(error.find("line 2, column 6"), error.npos) << error;
}

TEST(Json, NestingHasALimit) {
  const auto nested = [](std::size_t depth, const std::string& open, const std::string& close) {
    std::string text;
    for (std::size_t i = 0; i < depth; ++i) text += open;
    text += "1";
    for (std::size_t i = 0; i < depth; ++i) text += close;
    return text;
  };
  EXPECT_TRUE(parse_json(nested(kMaxJsonDepth, "[", "]")).is_array());
  EXPECT_TRUE(parse_json(nested(kMaxJsonDepth, "{\"a\":", "}")).is_object());
  std::string error;
  EXPECT_TRUE(parse_json(nested(kMaxJsonDepth + 1, "[", "]"), &error).is_discarded());
  EXPECT_EQ(error, "nested too deeply");
  EXPECT_TRUE(parse_json(nested(kMaxJsonDepth + 1, "{\"a\":", "}")).is_discarded());
  EXPECT_TRUE(parse_json(nested(5'000'000, "[", "]")).is_discarded());
}

// A builder that searches all earlier fields for each new one compares 5e10 names here, which takes minutes.
TEST(Json, ManyFieldsTakeNoTime) {
  constexpr int kFields = 300'000;
  std::string text = "{";
  for (int i = 0; i < kFields; ++i) text += fmt::format("\"{}\":{},", i, i);
  text += R"("7":"again"})";
  const std::clock_t start = std::clock();
  const Json json = parse_json(text);
  EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 10);
  ASSERT_EQ(json.size(), static_cast<std::size_t>(kFields));
  EXPECT_EQ(json["7"], "again");
  EXPECT_EQ(json.begin().key(), "0");
}

}  // namespace
}  // namespace ddl
