// A study that a launcher has started several times: the processes share its trials through the folder.
#include <filesystem>
#include <iterator>
#include <string>

#include "program_run.h"

namespace ddl {
namespace {

class StudyProgram : public ProgramRun {
 protected:
  void SetUp() override {
    run_well("ddl data generate overwrite --docs 200 --statements 12 --keys 3 --out in.jsonl");
    run_well("ddl data prepare in.jsonl --tokenizer bytes --out set");
    folder_.write("study.toml", R"(title = "small"
data = "set"
settings = ["model.layers=1", "model.width=16", "model.heads=1", "model.context=48", "train.batch=2",
            "train.warmup=1", "train.schedule=cooldown", "eval.windows=4", "model.precision=f32"]
rates = [0.004, 0.016, 0.064]
tuning_seeds = [1]
[[look]]
pairs = 2
p = 0.01
[[size]]
name = "XS"
tokens = [480]
arms = ["ddl-cc", "baseline"]
[[question]]
ask = "Is it better?"
arm = "ddl-cc"
against = "baseline"
)");
  }
  std::ptrdiff_t records(const std::string& study) const {
    namespace fs = std::filesystem;
    return std::distance(fs::directory_iterator(folder_ / (study + "/records")), fs::directory_iterator());
  }
};

TEST_F(StudyProgram, RanksOfALauncherShareIt) {
  run_well("ddl study study.toml --out alone --workers 1");
  run_well(
      "export WORLD_SIZE=2;"
      " RANK=1 ddl study study.toml --out both --workers 1 > second.out 2> second.err & second=$!;"
      " RANK=0 ddl study study.toml --out both --workers 1 > first.out || exit 1; wait $second");
  EXPECT_EQ(contents_of(folder_ / "second.out") + contents_of(folder_ / "second.err"), "");
  const std::string first = contents_of(folder_ / "first.out");
  EXPECT_NE(first.find("both: 1 worker on each of 2 ranks."), std::string::npos) << first;
  EXPECT_NE(first.find("after 2 pairs"), std::string::npos) << first;
  EXPECT_EQ(records("both"), records("alone"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "both/problems.txt"));
}

}  // namespace
}  // namespace ddl
