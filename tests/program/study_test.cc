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

// The plan of a short study is in seconds or minutes; a finished one starts nobody, and names the next step.
TEST_F(StudyProgram, SaysWhatThereIsToDo) {
  const std::string plan = run("ddl study study.toml --out here --workers 1 --dry-run").out;
  EXPECT_TRUE(contains(plan, " FLOPs, ") && contains(plan, " s with 1 worker here.")) << plan;
  EXPECT_FALSE(contains(plan, " hours")) << plan;
  const std::string first = run("ddl study study.toml --out here --workers 1").out;
  EXPECT_TRUE(contains(first, "here: 1 worker. Ctrl-C") && first.ends_with("\nNext: ./ddl report here\n"))
      << first;
  const Result again = run("ddl study study.toml --out here --workers 1");
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_FALSE(contains(again.out, "Ctrl-C")) << again.out;
  EXPECT_TRUE(contains(again.out, "after 2 pairs") && again.out.ends_with("\nNext: ./ddl report here\n"))
      << again.out;
  EXPECT_EQ(again.err, "");
  const std::string done = run("ddl study study.toml --out here --workers 1 --dry-run").out;
  EXPECT_TRUE(contains(done, "Nothing is left to train.")) << done;
  EXPECT_FALSE(contains(run("ddl study study.toml --out here --json").out, "Next:"));
}

// The plan is of what the same command would do without --dry-run: where that is a refusal, so is this.
TEST_F(StudyProgram, APlanForTheFolderOfAnotherStudyIsRefused) {
  folder_.write("taken/study.toml", "title = \"another\"\n");
  const Result plan = run("ddl study study.toml --out taken --dry-run");
  const Result work = run("ddl study study.toml --out taken");
  EXPECT_EQ(plan.code, 2) << plan.out;
  EXPECT_EQ(plan.out, "");
  EXPECT_TRUE(contains(plan.err, "holds another study")) << plan.err;
  EXPECT_EQ(plan.err, work.err);
  EXPECT_EQ(plan.code, work.code);
  run_well("ddl study study.toml --out new --dry-run");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "new")) << "a plan makes no folder";
}

}  // namespace
}  // namespace ddl
