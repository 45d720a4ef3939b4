// A folder that appears whole: one writer, and nothing of others' is touched.
#include "data/partial_folder.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>

#include "core/error.h"
#include "test_folder.h"

namespace ddl {
namespace {

TEST(PartialFolder, OneWriterAtATimeAndNoSurpriseAtTheEnd) {
  const TestFolder folder;
  const auto open = [&] {
    return std::make_unique<PartialFolder>(
        folder / "set", [](const std::string& target) { throw UserError("{}: is there", target); });
  };
  auto first = open();
  EXPECT_TRUE(contains(message_of<UserError>(open), "another process"));
  folder.write("set.partial/new/dataset.json", "{}");
  const std::string marker = std::string("/") + kIncompleteMarker;
  EXPECT_TRUE(std::filesystem::exists(folder / "set.partial" + marker));
  first->commit();
  EXPECT_FALSE(std::filesystem::exists(folder / "set" + marker));
  // Whatever is left by a kill from here on is marked as ours.
  EXPECT_TRUE(std::filesystem::exists(folder / "set.partial" + marker));
  EXPECT_TRUE(std::filesystem::exists(folder / "set/dataset.json"));
  first.reset();
  EXPECT_TRUE(contains(message_of<UserError>(open), "set: is there"));
  // A dataset that appears while another is written is not replaced.
  std::filesystem::remove_all(folder / "set");
  auto second = open();
  folder.write("set/dataset.json", "other");
  EXPECT_THROW(second->commit(), UserError);
  second.reset();
  EXPECT_EQ(contents_of(folder / "set/dataset.json"), "other");
  EXPECT_FALSE(std::filesystem::exists(folder / "set.partial"));
}

TEST(PartialFolder, ClearsWhatItLeftAndNothingElse) {
  const TestFolder folder;
  const auto open = [&] { return PartialFolder(folder / "set", [](const std::string&) {}).path(); };
  folder.write("set.partial/mine/letter.txt", "dear");
  const std::string why = message_of<UserError>(open);
  EXPECT_TRUE(contains(why, "set.partial: ") && contains(why, "move it away")) << why;
  EXPECT_EQ(contents_of(folder / "set.partial/mine/letter.txt"), "dear");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder / "set.partial"), {}), 1);
  folder.write(std::string("set.partial/") + kIncompleteMarker, "");
  EXPECT_EQ(open(), folder / "set.partial/new");
  EXPECT_FALSE(std::filesystem::exists(folder / "set.partial"));
  folder.write("set", "");
  EXPECT_TRUE(contains(message_of<UserError>(open), "is a file"));
}

}  // namespace
}  // namespace ddl
