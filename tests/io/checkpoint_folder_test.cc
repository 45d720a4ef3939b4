// The commit protocol: a checkpoint exists whole or not at all.
#include "io/checkpoint_folder.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "core/error.h"
#include "test_folder.h"

namespace ddl {
namespace {

namespace fs = std::filesystem;

std::string write_one(const TestFolder& folder, Index step, const std::string& contents = "hello") {
  CheckpointWriter writer(folder.path(), step);
  const std::vector<float> x(100, static_cast<float>(step));
  writer.add_tensors("model.safetensors", std::vector<TensorToWrite>{{"x", "F32", {100}, x.data()}});
  writer.add_text("trainer.json", contents);
  return writer.commit();
}

TEST(Checkpoint, IsReadBackAndListedInOrder) {
  const TestFolder folder;
  EXPECT_FALSE(latest_valid_checkpoint(folder.path()));
  EXPECT_FALSE(latest_valid_checkpoint(folder / "absent"));
  write_one(folder, 100);
  const std::string second = write_one(folder, 99999999 + 1);  // one more digit sorts after, not before
  write_one(folder, 7);
  const auto entries = list_checkpoints(folder.path());
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_EQ(entries[0].step, 7);
  EXPECT_EQ(entries[1].step, 100);
  EXPECT_EQ(entries[2].step, 100000000);
  EXPECT_EQ(entries[0].folder, folder / "step-00000007");
  verify_checkpoint(second);
  EXPECT_EQ(latest_valid_checkpoint(folder.path())->folder, second);
}

TEST(Checkpoint, DoesNotExistBeforeCommit) {
  const TestFolder folder;
  {
    CheckpointWriter writer(folder.path(), 3);
    writer.add_text("a", "b");
    EXPECT_TRUE(list_checkpoints(folder.path()).empty());
  }
  EXPECT_TRUE(fs::is_empty(folder.path()));  // abandoned: nothing is left
}

TEST(Checkpoint, OfTheSameStepIsReplaced) {
  const TestFolder folder;
  write_one(folder, 3, "old");
  const std::string path = write_one(folder, 3, "new");
  verify_checkpoint(path);
  EXPECT_EQ(contents_of(path + "/trainer.json"), "new");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()), 1);
}

TEST(Checkpoint, DamageIsNoticedAndAnOlderOneTaken) {
  const TestFolder folder;
  const std::string old = write_one(folder, 1);
  const auto damage = [&](const char* what, auto&& change) {
    const std::string path = write_one(folder, 2);
    change(path);
    std::vector<std::string> rejected;
    const auto latest = latest_valid_checkpoint(folder.path(), &rejected);
    ASSERT_TRUE(latest) << what;
    EXPECT_EQ(latest->folder, old) << what;
    fs::remove_all(path);
  };
  damage("one bit", [](const std::string& path) {
    std::fstream file(path + "/model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('\x01');
  });
  damage("cut", [](const std::string& path) { fs::resize_file(path + "/model.safetensors", 10); });
  damage("missing", [](const std::string& path) { fs::remove(path + "/trainer.json"); });
  damage("manifest cut", [](const std::string& path) { fs::resize_file(path + "/manifest.json", 30); });
  damage("no manifest", [](const std::string& path) { fs::remove(path + "/manifest.json"); });
  damage("a manifest that lists nothing", [](const std::string& path) {
    std::ofstream(path + "/manifest.json") << R"({"format":"ddl-checkpoint","version":1})";
  });
  damage("a manifest that points elsewhere", [](const std::string& path) {
    std::ofstream(path + "/manifest.json")
        << R"({"format":"ddl-checkpoint","version":1,"files":{"../x":{"bytes":0,"sha256":""}}})";
  });
}

// A disk that is full in the middle of a file: an error, the old checkpoint as it was, nothing half-written.
TEST(Checkpoint, FullDiskLeavesTheOldOne) {
  const TestFolder folder;
  const std::string old = write_one(folder, 1);
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1000, 1000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    try {
      CheckpointWriter writer(folder.path(), 2);
      const std::vector<float> x(1000);
      writer.add_tensors("model.safetensors", std::vector<TensorToWrite>{{"x", "F32", {1000}, x.data()}});
      writer.commit();
    } catch (const UserError& error) {
      ::_exit(contains(error.what(), "model.safetensors") ? 0 : 2);
    }
    ::_exit(1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(latest_valid_checkpoint(folder.path())->folder, old);
}

TEST(Checkpoint, RemovalAndLeftovers) {
  const TestFolder folder;
  write_one(folder, 1);
  const std::string second = write_one(folder, 2);
  folder.write("step-00000003.tmp-123/model.safetensors", "half");
  folder.write("step-00000000.old-9/manifest.json", "{}");
  folder.write("notes/mine", "kept");
  remove_unfinished_checkpoints(folder.path());
  remove_checkpoint(second);
  EXPECT_EQ(list_checkpoints(folder.path()).size(), 1u);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()), 2);
  EXPECT_TRUE(fs::exists(folder / "notes/mine"));
}

}  // namespace
}  // namespace ddl
