// Files: whole reads, mappings, atomic writes, full disks.
#include "io/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <filesystem>

#include "core/error.h"
#include "test_folder.h"

namespace ddl {
namespace {

TEST(File, ReadsAndMapsTheSameBytes) {
  const TestFolder folder;
  const std::string text("a\0b\xff\n", 5);
  const std::string path = folder.write("x", text), empty = folder.write("empty", "");
  EXPECT_EQ(read_file(path), text);
  EXPECT_EQ(read_file(empty), "");
  MappedFile mapped(path);
  ASSERT_EQ(mapped.bytes().size(), 5u);
  EXPECT_EQ(std::to_integer<int>(mapped.bytes()[3]), 0xff);
  MappedFile moved = std::move(mapped);
  EXPECT_EQ(moved.bytes().size(), 5u);
  EXPECT_TRUE(MappedFile(empty).bytes().empty());
  EXPECT_TRUE(contains(message_of<UserError>([&] { read_file(folder / "absent"); }), "absent"));
  EXPECT_TRUE(contains(message_of<UserError>([&] { MappedFile{folder / "absent"}; }), "absent"));
  EXPECT_TRUE(contains(message_of<UserError>([&] { read_file(folder.path()); }), "folder"));
}

TEST(File, ReadsFilesWhoseSizeTheSystemDoesNotSay) { EXPECT_GT(read_file("/proc/self/status").size(), 10u); }

TEST(File, ReadsNoMoreThanItsLimit) {
  const TestFolder folder;
  const std::string path = folder.write("x", std::string(3 << 20, 'x'));
  EXPECT_EQ(read_file(path, 3 << 20).size(), std::size_t{3} << 20);
  for (const std::string& large : {path, std::string("/dev/zero")}) {
    const std::string message = message_of<UserError>([&] { read_file(large, 2 << 20); });
    EXPECT_TRUE(contains(message, large) && contains(message, "2 MB")) << message;
  }
}

TEST(SteadyFile, SaysThatItHasChanged) {
  const TestFolder folder;
  const std::string path = folder.write("x", std::string(100'000, 'x'));
  const auto set_back = [&] {  // the clock of files may be coarse
    std::filesystem::last_write_time(path, std::filesystem::last_write_time(path) - std::chrono::hours(1));
  };
  set_back();
  SteadyFile opened(path);
  const SteadyFile file = std::move(opened);
  EXPECT_EQ(file.size(), 100'000u);
  char bytes[100] = {};
  file.read(99'900, bytes, sizeof bytes);
  EXPECT_EQ(bytes[99], 'x');
  const auto refusal = [&] { return message_of<UserError>([&] { file.read(0, bytes, sizeof bytes); }); };
  std::filesystem::resize_file(path, 50'000);
  EXPECT_TRUE(contains(refusal(), path + ": changed")) << refusal();
  std::filesystem::resize_file(path, 100'000);
  EXPECT_TRUE(contains(refusal(), "something has written to it")) << refusal();
  // Another file in its place is no change of this one.
  const SteadyFile second(path);
  folder.write("y", "other");
  std::filesystem::rename(folder / "y", path);
  second.read(0, bytes, sizeof bytes);
  std::filesystem::remove(path);
  second.read(0, bytes, sizeof bytes);
  SteadyFile().read(0, bytes, 0);
}

TEST(AtomicFile, AppearsOnlyWhenCommitted) {
  const TestFolder folder;
  const std::string path = folder.write("x", "old");
  {
    AtomicFile file(path);
    file.write(std::string(200000, 'n'));  // more than the buffer, so that bytes are on disk already
    EXPECT_EQ(contents_of(path), "old");
  }
  EXPECT_EQ(contents_of(path), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1)
      << "a temporary is left";
  AtomicFile file(path);
  file.write("new");
  file.commit();
  EXPECT_EQ(contents_of(path), "new");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(AtomicFile, AFolderThatIsMissingIsNamed) {
  const TestFolder folder;
  const std::string message = message_of<UserError>([&] { AtomicFile file(folder / "no/file"); });
  EXPECT_NE(message.find("no/file: cannot be written: there is no folder " + (folder / "no")), message.npos)
      << message;
}

TEST(AtomicFile, FollowsSymbolicLinks) {
  namespace fs = std::filesystem;
  const TestFolder folder;
  folder.write("real/x", "old");
  fs::create_symlink("real/x", folder / "link");
  fs::create_symlink(folder / "link", folder / "second");
  write_file_atomic(folder / "second", "new");
  EXPECT_TRUE(fs::is_symlink(folder / "link") && fs::is_symlink(folder / "second"));
  EXPECT_EQ(contents_of(folder / "real/x"), "new");
  // What it leads to need not be there yet.
  fs::create_symlink("real/y", folder / "dangling");
  write_file_atomic(folder / "dangling", "new");
  EXPECT_TRUE(fs::is_symlink(folder / "dangling"));
  EXPECT_EQ(contents_of(folder / "real/y"), "new");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder / "real"), {}), 2) << "a temporary is left";
  fs::create_symlink("circle", folder / "circle");
  EXPECT_TRUE(
      contains(message_of<UserError>([&] { write_file_atomic(folder / "circle", "x"); }), "circle: cannot"));
  EXPECT_TRUE(contains(message_of<UserError>([&] { write_file_atomic(folder / "real", "x"); }), "directory"));
}

TEST(AtomicFile, APipeIsWrittenToAndStaysAPipe) {
  const TestFolder folder;
  const std::string pipe = folder / "pipe", link = folder / "link";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::filesystem::create_symlink("pipe", link);
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);  // a writer does not wait for one, then
  ASSERT_GE(reader, 0);
  for (const std::string& path : {pipe, link}) {
    write_file_atomic(path, "through " + path);
    EXPECT_TRUE(std::filesystem::is_fifo(pipe));
    std::string got(100, '\0');
    got.resize(static_cast<std::size_t>(std::max<ssize_t>(0, ::read(reader, got.data(), got.size()))));
    EXPECT_EQ(got, "through " + path);
  }
  { AtomicFile dropped(pipe); }  // without commit()
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 2);
  ::close(reader);
}

TEST(FileWriter, BuffersInOrderAndPatches) {
  const TestFolder folder;
  std::string expected;
  {
    FileWriter writer(folder / "x");
    for (int i = 0; i < 3000; ++i) {
      const std::string piece(static_cast<std::size_t>(i % 97), static_cast<char>('a' + i % 26));
      writer.write(piece);
      expected += piece;
    }
    const std::string big(100000, 'B');
    writer.write(big);
    expected += big;
    writer.write_at(3, "###", 3);
    expected.replace(3, 3, "###");
    writer.write("end");
    expected += "end";
    EXPECT_EQ(writer.bytes_written(), expected.size());
    writer.flush();
  }
  EXPECT_EQ(contents_of(folder / "x"), expected);
}

TEST(FileWriter, AFullDiskNamesTheFile) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "needs /dev/full";
  const std::string message = message_of<UserError>([] {
    FileWriter writer("/dev/full");
    writer.write("x");
    writer.flush();
  });
  EXPECT_TRUE(contains(message, "/dev/full") && contains(message, "space")) << message;
}

// A file-size limit stands in for a disk that fills up half way.
TEST(AtomicFile, ADiskThatFillsUpLeavesTheOldFileAndNoOther) {
  const TestFolder folder;
  const std::string path = folder.write("x", "old");
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{100000, 100000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    try {
      write_file_atomic(path, std::string(300000, 'n'));
      ::_exit(1);
    } catch (const UserError& error) {
      ::_exit(contains(error.what(), path) ? 0 : 2);
    }
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(contents_of(path), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(File, Folders) {
  const TestFolder folder;
  make_folders(folder / "a/b/c");
  make_folders(folder / "a/b/c");
  EXPECT_TRUE(std::filesystem::is_directory(folder / "a/b/c"));
  remove_all(folder / "a");
  remove_all(folder / "a");
  EXPECT_FALSE(std::filesystem::exists(folder / "a"));
  EXPECT_EQ(parent_folder("a/b/"), "a");
  EXPECT_EQ(parent_folder("a"), ".");
  EXPECT_EQ(parent_folder("/a"), "/");
  EXPECT_THROW(make_folders("/proc/none/x"), UserError);
}

}  // namespace
}  // namespace ddl
