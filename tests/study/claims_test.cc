#include "study/claims.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "core/error.h"
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

// From here on link(2) fails for this thread, as on a file system without hard links.
bool forbid_links() {
#ifdef SYS_link
  constexpr std::uint32_t kLink = SYS_link;
#else
  constexpr std::uint32_t kLink = SYS_linkat;
#endif
  std::array<sock_filter, 5> rules = {{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                                       BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kLink, 1, 0),
                                       BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_linkat, 0, 1),
                                       BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                                       BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)}};
  const sock_fprog filter = {rules.size(), rules.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

TEST(Claims, NeedHardLinks) {
  const TestFolder folder;
  const std::string claims = folder / "claims";
  bool forbidden = false;
  std::string said;
  std::thread([&] {
    forbidden = forbid_links();
    if (forbidden) said = message_of<UserError>([&] { Claim::take(claims, "a"); });
  }).join();
  if (!forbidden) GTEST_SKIP() << "needs seccomp";
  EXPECT_TRUE(contains(said, claims + "/a.claim: cannot be linked to") && contains(said, "hard links"))
      << said;
  EXPECT_TRUE(std::filesystem::is_empty(claims));
  EXPECT_NE(Claim::take(claims, "a"), nullptr);  // of another thread
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
    int report[2], end[2];
    ASSERT_EQ(::pipe(report), 0);
    ASSERT_EQ(::pipe(end), 0);
    std::vector<pid_t> children;
    for (int i = 0; i < 4; ++i) {
      const pid_t child = ::fork();
      if (child == 0) {
        ::close(end[1]);
        const auto claim = Claim::take(claims, name);
        char byte = claim ? 'x' : '-';
        if (::write(report[1], &byte, 1) != 1) ::_exit(1);
        ::_exit(::read(end[0], &byte, 1) == 0 ? 0 : 1);  // holds it until all have tried
      }
      children.push_back(child);
    }
    ::close(report[1]);  // or a child that died would leave the next line waiting
    int owners = 0;
    char byte = 0;
    for (std::size_t i = 0; i < children.size(); ++i) {
      ASSERT_EQ(::read(report[0], &byte, 1), 1);
      owners += byte == 'x';
    }
    EXPECT_EQ(owners, 1);
    ::close(end[1]);
    for (const pid_t child : children) ::waitpid(child, nullptr, 0);
    ::close(end[0]);
    ::close(report[0]);
  }
}

}  // namespace
}  // namespace ddl
