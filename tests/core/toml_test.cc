#include "core/toml.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "test_folder.h"

namespace ddl {
namespace {

TEST(Toml, BecomesJson) {
  const Json json =
      parse_toml("a = 1\nb.c = [\"x\", 2.5, true]\n[[d]]\ne = \"\"\"two\nlines\"\"\"\n[[d]]\n", "x.toml");
  EXPECT_EQ(json, (Json{{"a", 1},
                        {"b", {{"c", {"x", 2.5, true}}}},
                        {"d", Json::array({Json{{"e", "two\nlines"}}, Json::object()})}}));
  EXPECT_EQ(parse_toml("", "x.toml"), Json::object());
}

TEST(Toml, ErrorsNameTheLine) {
  EXPECT_TRUE(contains(message_of<UserError>([] { parse_toml("a = 1\nb =\n", "x.toml"); }),
                       "x.toml:2: not valid TOML"));
  EXPECT_TRUE(contains(message_of<UserError>([] { parse_toml("a = 1\na = 2\n", "x.toml"); }),
                       "x.toml:2: not valid TOML"));
  EXPECT_TRUE(
      contains(message_of<UserError>([] { parse_toml("\nd = 2026-11-15\n", "x.toml"); }), "x.toml:2: dates"));
}

}  // namespace
}  // namespace ddl
