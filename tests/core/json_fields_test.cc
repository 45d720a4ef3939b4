// Members of files of others: each error names the file, the member, what was expected and what was found.
#include "core/json_fields.h"

#include <gtest/gtest.h>

#include <limits>

#include "core/error.h"
#include "test_folder.h"

namespace ddl {
namespace {

TEST(JsonFields, ReadsWhatIsThere) {
  const Json json = parse_json(R"({"a":3,"b":{"c":"x","d":1.5},"e":[{"f":1},{"f":2}]})");
  const JsonFields fields(json, "file.json");
  EXPECT_EQ(fields.whole("a"), 3);
  EXPECT_EQ(fields.object("b").text("c"), "x");
  EXPECT_EQ(fields.object("b").number("d"), 1.5);
  EXPECT_EQ(fields.objects("e").at(1).whole("f"), 2);
  EXPECT_TRUE(fields.has("a") && !fields.has("z"));
}

TEST(JsonFields, NamesWhatIsWrong) {
  const Json json = parse_json(R"({"a":-1,"b":{"c":3},"e":[{"f":"x"},7],"g":1.0,"h":18446744073709551615})");
  const JsonFields fields(json, "file.json");
  const auto refused = [](auto body) { return message_of<UserError>(body); };
  EXPECT_EQ(refused([&] { fields.whole("a"); }),
            "file.json: 'a' is -1, expected a whole number of 0 or more");
  EXPECT_EQ(refused([&] { fields.whole("h", 1, 9); }),
            "file.json: 'h' is 18446744073709551615, expected a whole number from 1 to 9");
  EXPECT_EQ(refused([&] { fields.whole("z"); }), "file.json: 'z' is missing");
  EXPECT_EQ(refused([&] { fields.object("b").text("c"); }), "file.json: 'b.c' is 3, expected a string");
  EXPECT_TRUE(contains(refused([&] { fields.objects("e"); }), "expected a JSON object at e[1]"));
  EXPECT_TRUE(contains(refused([&] { fields.whole("g"); }), "'g' is 1.0"));
  EXPECT_TRUE(contains(refused([&] { fields.whole("h"); }), "'h'"));
  EXPECT_TRUE(contains(refused([&] { fields.object("a"); }), "an object"));
  EXPECT_TRUE(contains(refused([&] { fields.number("b"); }), "a number"));
  EXPECT_THROW(JsonFields(Json(3), "file.json"), UserError);
  EXPECT_EQ(fields.whole("a", std::numeric_limits<Index>::min()), -1);
}

}  // namespace
}  // namespace ddl
