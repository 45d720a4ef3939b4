// The JSON Lines scanner against the JSON library: same rows accepted, same text; and what only it accepts.
#include "data/json_row.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>

#include "test_folder.h"

namespace ddl {
namespace {

std::optional<std::string> scan(std::string_view line) {
  JsonRow row;
  try {
    parse_json_row(line, "text", row);
  } catch (const UserError&) {
    return std::nullopt;
  }
  return row.text;
}

std::optional<std::string> library(std::string_view line) {
  const auto json = nlohmann::json::parse(line, nullptr, false);
  if (!json.is_object() || !json.contains("text") || !json["text"].is_string()) return std::nullopt;
  return json["text"].get<std::string>();
}

const char* const kRows[] = {
    R"({"text":"hello"})",
    R"(  { "id" : 17, "text" : "a\nb\t\"q\" \\ \/ \b\f\r" , "more":[1,2.5e-3,{"x":null}],"ok":true,"no":false } )",
    R"({"text":"caf\u00e9 \ud83d\ude00 \u4e2d"})",
    R"({"text":"first","text":"second"})",
    R"({"n":-0.5E+10,"m":0,"k":-12,"text":""})",
    R"({"text":"x","answers":[[0,1]]})",
    R"({"a":{"text":"inner"},"text":"outer"})",
    "{\"text\":\"caf\xc3\xa9\"}",
};

TEST(JsonRow, AgreesWithTheLibraryOnGoodRows) {
  for (const char* row : kRows) {
    ASSERT_TRUE(scan(row).has_value()) << row;
    EXPECT_EQ(scan(row), library(row)) << row;
  }
}

// Every row with bytes changed, dropped or doubled: the scanner accepts what the library accepts, with the
// same text. (What is not UTF-8 or has half a surrogate pair only the scanner accepts; such rows are left to
// the next tests.)
TEST(JsonRow, AgreesWithTheLibraryOnDamagedRows) {
  std::mt19937 random(1);
  const std::string_view alphabet = "{}[]\",:\\ut0123-+.eE tfn\x01\x7f\n";
  int accepted = 0, refused = 0;
  for (int i = 0; i < 200000; ++i) {
    std::string row = kRows[random() % std::size(kRows)];
    for (std::uint32_t edits = 1 + random() % 3; edits > 0; --edits) {
      const std::size_t at = random() % row.size();
      const char c = alphabet[random() % alphabet.size()];
      switch (random() % 3) {
        case 0:
          row[at] = c;
          break;
        case 1:
          row.erase(at, 1);
          break;
        default:
          row.insert(at, 1, c);
      }
    }
    const auto ours = scan(row), theirs = library(row);
    if (theirs) {
      ASSERT_EQ(ours, theirs) << row;
      ++accepted;
    } else if (ours) {
      // Allowed for few reasons only.
      const bool half_pair = contains(row, "\\ud") || contains(row, "\\uD");
      bool utf8 = true;
      try {
        (void)nlohmann::json(row).dump();
      } catch (const nlohmann::json::exception&) {
        utf8 = false;
      }
      bool huge_number = false;  // valid JSON, beyond the library's range
      try {
        const auto ignored = nlohmann::json::parse(row);
      } catch (const nlohmann::json::out_of_range&) {
        huge_number = true;
      } catch (const nlohmann::json::exception&) {
      }
      ASSERT_TRUE(half_pair || !utf8 || huge_number) << row;
    } else {
      ++refused;
    }
  }
  EXPECT_GT(accepted, 10000);
  EXPECT_GT(refused, 10000);
}

TEST(JsonRow, BytesThatAreNotUtf8AreData) {
  EXPECT_EQ(scan("{\"text\":\"a\xff\xfe\x80z\"}"), "a\xff\xfe\x80z");
  EXPECT_EQ(scan("{\"na\xffme\":\"\xff\",\"text\":\"x\"}"), "x");
  EXPECT_EQ(scan(R"({"text":"\ud800x"})"), "\xef\xbf\xbdx");
  EXPECT_EQ(scan(R"({"text":"\udc00"})"), "\xef\xbf\xbd");
  EXPECT_EQ(scan(R"({"text":"\ud800\u0041"})"),
            "\xef\xbf\xbd"
            "A");
  EXPECT_EQ(scan(R"({"text":"\ud800\ud83d\ude00"})"), "\xef\xbf\xbd\xf0\x9f\x98\x80");
}

TEST(JsonRow, SaysWhatIsWrongAndWhere) {
  const auto why = [](std::string_view line) {
    return message_of<UserError>([&] {
      JsonRow row;
      parse_json_row(line, "text", row);
    });
  };
  EXPECT_TRUE(contains(why(R"({"text":"x)"), "column 11")) << why(R"({"text":"x)");
  EXPECT_TRUE(contains(why(R"({"text" "x"})"), "column 9")) << why(R"({"text" "x"})");
  EXPECT_TRUE(contains(why(R"(["text"])"), "object"));
  EXPECT_TRUE(contains(why(R"({"text":"x"} y)"), "follows"));
  EXPECT_TRUE(contains(why(R"({"body":"x","id":1})"), "no field 'text' (found: body, id)"));
  EXPECT_TRUE(contains(why(R"({"text":null})"), "null"));
  EXPECT_TRUE(contains(why(R"({"text":12})"), "number"));
  EXPECT_TRUE(contains(why(std::string(100000, '[')), "object"));
  EXPECT_TRUE(contains(why("{\"a\":" + std::string(100000, '[')), "deep"));
  std::string objects;
  for (int i = 0; i < 100000; ++i) objects += "{\"a\":";
  EXPECT_TRUE(contains(why(objects), "deep"));
}

TEST(JsonRow, FindsTheAnswersAsTheyAreWritten) {
  JsonRow row;
  const std::string line = R"({"answers": [[0, 1], [2,3]] , "text":"abc"})";
  parse_json_row(line, "text", row);
  EXPECT_EQ(row.answers, "[[0, 1], [2,3]]");
  parse_json_row(R"({"text":"abc"})", "text", row);
  EXPECT_TRUE(row.answers.empty());
}

}  // namespace
}  // namespace ddl
