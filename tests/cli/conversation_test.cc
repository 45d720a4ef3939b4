// What the lines of a conversation do.
#include "cli/conversation.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/error.h"
#include "test_folder.h"

namespace ddl {
namespace {

struct Talk {
  GenerateOptions options;
  std::vector<std::string> asked, said;
  std::vector<std::uint64_t> seeds;
  Conversation conversation{options,
                            [this](const std::string& prompt) {
                              if (prompt == "long") throw UserError("too long");
                              asked.push_back(prompt);
                              seeds.push_back(options.sampling.seed);
                            },
                            [] { return "gates of the last text"; },
                            [this](const std::string& line) { said.push_back(line); }};
};

TEST(Conversation, LinesArePromptsAndSlashesAreCommands) {
  Talk talk;
  for (const char* line :
       {"once", "/again", "/seed 7", "//usr", "/temperature 0.25", "/max 12", "/gates", "/help"})
    EXPECT_TRUE(talk.conversation.take(line)) << line;
  EXPECT_EQ(talk.asked, (std::vector<std::string>{"once", "once", "/usr"}));
  EXPECT_EQ(talk.seeds, (std::vector<std::uint64_t>{0, 1, 7})) << "another text for the same prompt";
  EXPECT_EQ(talk.options.sampling.temperature, 0.25);
  EXPECT_EQ(talk.options.max_new_tokens, 12);
  ASSERT_EQ(talk.said.size(), 2u);
  EXPECT_EQ(talk.said[0], "gates of the last text");
  for (const char* name : {"/temperature", "/seed", "/max", "/gates", "/again", "(now 0.25)", "(now 12)"})
    EXPECT_TRUE(contains(talk.said[1], name)) << name;
  EXPECT_FALSE(talk.conversation.take(""));
}

TEST(Conversation, WhatIsWrongIsSaidAndItContinues) {
  Talk talk;
  for (const char* line : {"/again", "/gates", "/temprature 1", "/temperature hot", "/temperature -1", "/max",
                           "/max -3", "/seed 1.5", "long"}) {
    talk.said.clear();
    EXPECT_TRUE(talk.conversation.take(line)) << line;
    ASSERT_EQ(talk.said.size(), 1u) << line;
    EXPECT_TRUE(talk.said[0].starts_with("ddl: ")) << talk.said[0];
  }
  talk.said.clear();
  talk.conversation.take("/temprature 1");
  EXPECT_TRUE(contains(talk.said[0], "did you mean /temperature?")) << talk.said[0];
  EXPECT_TRUE(talk.asked.empty());
  EXPECT_EQ(talk.options.max_new_tokens, GenerateOptions().max_new_tokens);
}

}  // namespace
}  // namespace ddl
