// Options that come with a choice: listed with it, refused without it, copied like values.
#include "core/option_set.h"

#include <gtest/gtest.h>

#include "test_folder.h"

namespace ddl {
namespace {

struct Brush : OptionSetOf<Brush> {
  Index hairs = 100;
  double width = 0.5;
  void describe(Options& o) override {
    o.add("paint.hairs", hairs, "number").range(1, 1000);
    o.add("paint.width", width, "of a stroke").range(0, 1);
  }
};
struct Spray : OptionSetOf<Spray> {
  double pressure = 2, width = 0.25;
  void describe(Options& o) override {
    o.add("paint.pressure", pressure, "in bar").range(0, 10);
    o.add("paint.width", width, "of a stroke").range(0, 1);
  }
};
struct Finger : OptionSetOf<Finger> {
  void describe(Options&) override {}
};

Options list(const std::string& chosen, OptionSetPtr& own) {
  Options options;
  describe_chosen(options, "paint.tool", chosen, *own,
                  {{"brush", OptionSetPtr(Brush{})},
                   {"spray", OptionSetPtr(Spray{})},
                   {"finger", OptionSetPtr(Finger{})}});
  return options;
}

TEST(OptionSet, ListsTheChosenOnesAndSaysWhoseTheOthersAre) {
  OptionSetPtr own(Brush{});
  Options options = list("brush", own);
  options.load_text("paint.hairs = 7\npaint.width = 1\n", "file");
  EXPECT_EQ(own.as<Brush>().hairs, 7);
  EXPECT_EQ(own.as<Brush>().width, 1);
  EXPECT_EQ(message_of<UserError>([&] { options.load_text("\npaint.pressure = 3\n", "file"); }),
            "file:2: paint.pressure is an option of paint.tool = spray; brush has paint.hairs, paint.width");
  EXPECT_TRUE(contains(message_of<UserError>([&] { options.set("paint.presure=3"); }), "did you mean"));

  OptionSetPtr none(Finger{});
  Options without = list("finger", none);
  EXPECT_TRUE(without.list().empty());
  EXPECT_EQ(message_of<UserError>([&] { without.set("paint.width=1"); }),
            "--set paint.width=1: paint.width is an option of paint.tool = brush or spray; finger has no "
            "options of its own");
}

TEST(OptionSet, AStoredTextMayHoldTheOptionsOfAnotherChoice) {
  OptionSetPtr own(Brush{});
  Options options = list("brush", own);
  options.load_text("paint.pressure = 3\npaint.width = 0.75\n", "stored", Options::Refused::kSkip);
  EXPECT_EQ(own.as<Brush>().width, 0.75);
  EXPECT_TRUE(contains(message_of<UserError>([&] {
                         options.load_text("paint.presure = 3\n", "stored", Options::Refused::kSkip);
                       }),
                       "unknown option"));
}

TEST(OptionSet, ACopyHasMembersOfItsOwn) {
  OptionSetPtr first(Brush{});
  OptionSetPtr second = first, third;
  third = first;
  first.as<Brush>().hairs = 1;
  EXPECT_EQ(second.as<Brush>().hairs, 100);
  EXPECT_EQ(third.as<Brush>().hairs, 100);
  const OptionSetPtr moved = std::move(second);
  EXPECT_EQ(moved.as<Brush>().hairs, 100);
  EXPECT_FALSE(OptionSetPtr(OptionSetPtr{}));
}

TEST(Options, PeeksAtAChoiceBeforeThereIsAList) {
  using Said = std::optional<std::string>;
  EXPECT_EQ(Options::peek("[paint]\ntool = \"spray\"\n", "paint.tool"), Said("spray"));
  EXPECT_EQ(Options::peek("paint.tool = 'spray'", "paint.tool"), Said("spray"));
  EXPECT_EQ(Options::peek("tool = \"spray\"", "tool"), Said("spray"));
  for (const char* text : {"", "paint.tools = \"spray\"", "paint.tool = 3", "paint = 3", "paint.tool = "})
    EXPECT_EQ(Options::peek(text, "paint.tool"), std::nullopt) << text;
  EXPECT_EQ(Options::peek_assignment("paint.tool=spray", "paint.tool"), Said("spray"));
  EXPECT_EQ(Options::peek_assignment("paint.tool=\"spray\"", "paint.tool"), Said("spray"));
  for (const char* text : {"", "paint.tool", "paint.tools=spray", "paint.tool=\"spray"})
    EXPECT_EQ(Options::peek_assignment(text, "paint.tool"), std::nullopt) << text;
}

}  // namespace
}  // namespace ddl
