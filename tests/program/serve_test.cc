// ddl serve and ddl watch as a person starts and ends them.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <string>

#include "core/json.h"
#include "test_folder.h"

namespace ddl {
namespace {

class ServeProgram : public ::testing::Test {
 protected:
  // In a shell, in the test's folder; "ddl" is the program.
  int run(const std::string& command) {
    const std::string script = "cd " + folder_.path() +
                               " && export DDL_THREADS=1; unset DDL_API_KEY; ddl() { exec " DDL_PROGRAM
                               " \"$@\"; }; ( " +
                               command + " ) > out 2> err < /dev/null";
    const int status = std::system(script.c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::string error() const { return contents_of(folder_ / "err"); }
  TestFolder folder_;
};

TEST_F(ServeProgram, EndsWellWhenItIsToldTo) {
  folder_.write("runs/a/metrics.jsonl", "");
  for (const char* signal : {"TERM", "INT"}) {
    // The address is printed once it answers.
    EXPECT_EQ(run(std::string("(ddl watch runs --port 0 --json > address) & pid=$!; i=0; "
                              "while [ ! -s address ] && [ $i -lt 400 ]; do sleep 0.05; i=$((i+1)); done; "
                              "kill -") +
                  signal + " $pid; wait $pid; code=$?; cat address; exit $code"),
              0)
        << error();
    const Json record = parse_json(contents_of(folder_ / "out"));
    ASSERT_TRUE(record.is_object()) << contents_of(folder_ / "out");
    EXPECT_EQ(record["event"], "serving");
    EXPECT_TRUE(record["address"].get<std::string>().starts_with("http://127.0.0.1:"));
    folder_.write("address", "");
  }
}

TEST_F(ServeProgram, No1RefusesToServeOthersWithoutAKey) {
  folder_.write("runs/a/metrics.jsonl", "");
  folder_.write("short", "tooshort\n");
  EXPECT_EQ(run("ddl watch runs --port 0 --host 0.0.0.0"), 2);
  EXPECT_TRUE(contains(error(), "--api-key-file")) << error();
  EXPECT_EQ(run("ddl watch runs --port 0 --host 0.0.0.0 --api-key-file short"), 2);
  EXPECT_TRUE(contains(error(), "16 characters")) << error();
  EXPECT_EQ(run("ddl watch runs --port 0 --api-key-file none"), 2);
  EXPECT_EQ(run("ddl watch none"), 2);
  EXPECT_EQ(run("ddl serve none"), 2);
  EXPECT_EQ(run("ddl serve runs/a"), 2) << "a run without a checkpoint";
  EXPECT_EQ(run("ddl watch runs --host nowhere"), 2);
  EXPECT_EQ(run("ddl watch runs --port 99999"), 2);
}

}  // namespace
}  // namespace ddl
