#include "study/claims.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <ctime>
#include <string>
#include <vector>

#include "io/file.h"
#include "test_folder.h"

namespace ddl {
namespace {

TEST(Claims, OneOwnerAtATime) {
  const TestFolder folder;
  const std::string claims = folder / "claims";
  auto first = Claim::take(claims, "a");
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(Claim::take(claims, "a"), nullptr);
  EXPECT_NE(Claim::take(claims, "b"), nullptr);  // and given back at once
  EXPECT_EQ(claims_held(claims), 1);
  first.reset();
  EXPECT_EQ(claims_held(claims), 0);
  EXPECT_NE(Claim::take(claims, "a"), nullptr);
}

// A process that holds a claim until it is killed.
TEST(Claims, OfAKilledProcessAreTakenOver) {
  const TestFolder folder;
  const std::string claims = folder / "claims";
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto claim = Claim::take(claims, "a");
    if (::write(ready[1], "x", 1) != 1) ::_exit(1);
    for (;;) ::pause();
  }
  char byte;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_EQ(Claim::take(claims, "a"), nullptr);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(ready[0]), ::close(ready[1]);
  EXPECT_NE(Claim::take(claims, "a"), nullptr);
}

TEST(Claims, OfAnotherMachineAreTakenOverWhenNobodyTouchesThem) {
  const TestFolder folder;
  const std::string claims = folder / "claims", path = claims + "/a.claim";
  make_folders(claims);
  write_file_atomic(path, "{\"machine\":\"elsewhere.example 1\",\"pid\":1}\n");
  const auto age = [&](double seconds) {
    timespec times[2];
    ::clock_gettime(CLOCK_REALTIME, &times[0]);
    times[0].tv_sec -= static_cast<time_t>(seconds), times[1] = times[0];
    ::utimensat(AT_FDCWD, path.c_str(), times, 0);
  };
  age(kStaleClaimSeconds / 2);
  EXPECT_EQ(Claim::take(claims, "a"), nullptr);
  EXPECT_EQ(claims_held(claims), 1);
  age(kStaleClaimSeconds + 10);
  EXPECT_NE(Claim::take(claims, "a"), nullptr);
}

// Several processes that find the same claim abandoned: one of them gets it.
TEST(Claims, AreTakenOverByOne) {
  const TestFolder folder;
  const std::string claims = folder / "claims";
  make_folders(claims);
  for (int round = 0; round < 20; ++round) {
    const std::string name = "a" + std::to_string(round);
    write_file_atomic(claims + "/" + name + ".claim", "{\"machine\":\"elsewhere.example 1\",\"pid\":1}\n");
    timespec times[2];
    ::clock_gettime(CLOCK_REALTIME, &times[0]);
    times[0].tv_sec -= 1000, times[1] = times[0];
    ::utimensat(AT_FDCWD, (claims + "/" + name + ".claim").c_str(), times, 0);
    int report[2];
    ASSERT_EQ(::pipe(report), 0);
    std::vector<pid_t> children;
    for (int i = 0; i < 4; ++i) {
      const pid_t child = ::fork();
      if (child == 0) {
        const auto claim = Claim::take(claims, name);
        if (claim && ::write(report[1], "x", 1) != 1) ::_exit(1);
        ::usleep(20000);  // hold it while the others try
        ::_exit(0);
      }
      children.push_back(child);
    }
    for (const pid_t child : children) ::waitpid(child, nullptr, 0);
    ::close(report[1]);
    char owners[8];
    EXPECT_EQ(::read(report[0], owners, sizeof owners), 1);
    ::close(report[0]);
  }
}

}  // namespace
}  // namespace ddl
