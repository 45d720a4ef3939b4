// From files to results with a scorer that is not a model.
#include "eval/run_tasks.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "core/error.h"
#include "eval/eval_testing.h"
#include "io/file.h"
#include "test_folder.h"

namespace ddl {
namespace {

// log p = minus the number of the continuation's tokens; counts what it is asked.
struct ShortestWins {
  Index requests = 0, calls = 0;
  Index requests_allowed = 1000;  // then it is interrupted
  bool backwards = false;
  ScoreFunction function() {
    return [this](std::span<const ScoreRequest> asked, FunctionRef<void(Index, const Score&)> scored) {
      ++calls;
      for (Index i = 0; i < std::ssize(asked); ++i) {
        if (++requests > requests_allowed) throw std::runtime_error("interrupted");
        const Index r = backwards ? std::ssize(asked) - 1 - i : i;
        const std::size_t tokens = asked[static_cast<std::size_t>(r)].continuation.size();
        scored(r, {-static_cast<double>(tokens), tokens == 2});
      }
    };
  }
};

class RunTasks : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string rows;
    // Even documents: the right choice is the shorter one. Every third has a long goal.
    for (int i = 0; i < 10; ++i)
      rows += fmt::format("{{\"goal\":\"goal {}{}\",\"sol1\":\"aa\",\"sol2\":\"b\",\"label\":{}}}\n", i,
                          i % 3 == 0 ? " and much more text" : "", i % 2 == 0 ? 1 : 0);
    folder_.write("piqa/validation.jsonl", rows);
    folder_.write("piqa/train.jsonl", rows);
    request_.tasks = find_tasks({"piqa"}, {});
    request_.data = folder_.path();
    request_.model_hash = "abc";
  }
  EvalReport run() {
    scorer_ = {};
    return run_tasks(request_, *bytes_, scorer_.function(), {});
  }
  std::string refusal() {
    return message_of<UserError>([&] { run(); });
  }

  TestFolder folder_;
  std::unique_ptr<Tokenizer> bytes_ = load_tokenizer("bytes");
  EvalRequest request_;
  ShortestWins scorer_;
};

TEST_F(RunTasks, CountsWhatIsRight) {
  const TaskResult result = run().results.at(0);
  EXPECT_EQ(result.task, "piqa");
  EXPECT_EQ(result.documents, 10);
  EXPECT_DOUBLE_EQ(result.find(Metric::kAccuracy)->value, 0.5);
  // " aa" -3 / 2 characters against " b" -2 / 1: normalised, the longer one wins.
  EXPECT_DOUBLE_EQ(result.find(Metric::kNormalisedAccuracy)->value, 0.5);
  EXPECT_NEAR(*result.find(Metric::kAccuracy)->error, std::sqrt(0.25 / 9), 1e-15);
  EXPECT_EQ(scorer_.requests, 20);
  EXPECT_EQ(scorer_.calls, 1);
}

TEST_F(RunTasks, RightAnswersArePairedWithTheirScores) {
  folder_.write("piqa/validation.jsonl", R"({"goal":"g","sol1":"aa","sol2":"b","label":1})"
                                         "\n"
                                         R"({"goal":"g","sol1":"a","sol2":"bb","label":0})");
  const TaskResult result = run().results.at(0);
  EXPECT_EQ(result.find(Metric::kAccuracy)->value, 1);
  EXPECT_EQ(result.find(Metric::kNormalisedAccuracy)->value, 0);
}

TEST_F(RunTasks, TheOrderOfScoresChangesNothing) {
  request_.shots = 1;
  const TaskResult forwards = run().results.at(0);
  scorer_ = {.backwards = true};
  const TaskResult backwards = run_tasks(request_, *bytes_, scorer_.function(), {}).results.at(0);
  EXPECT_EQ(scorer_.calls, 1);
  for (const Metric metric : {Metric::kAccuracy, Metric::kNormalisedAccuracy})
    EXPECT_EQ(backwards.find(metric)->value, forwards.find(metric)->value);
  EXPECT_EQ(backwards.data_hash, forwards.data_hash);
}

TEST_F(RunTasks, LimitTakesTheFirstDocuments) {
  request_.limit = 3;
  const TaskResult result = run().results.at(0);
  EXPECT_EQ(result.documents, 3);
  EXPECT_EQ(result.documents_in_split, 10);
  EXPECT_DOUBLE_EQ(result.find(Metric::kAccuracy)->value, 2.0 / 3);
  request_.limit = 99;
  EXPECT_EQ(run().results.at(0).documents, 10);
}

// LAMBADA's examples come from the split that is evaluated, all of it, whatever is asked of it.
TEST_F(RunTasks, LimitLeavesTheExamplesAsTheyWere) {
  std::string rows;
  for (int i = 0; i < 40; ++i) rows += fmt::format("{{\"text\":\"text number {}\"}}\n", i);
  folder_.write("lambada_openai/test.jsonl", rows);
  request_.tasks = find_tasks({"lambada_openai"}, {});
  request_.shots = 1;
  request_.samples = folder_ / "all.jsonl";
  run();
  request_.samples = folder_ / "first.jsonl";
  request_.limit = 5;
  run();
  const std::string all = contents_of(folder_ / "all.jsonl"), first = contents_of(request_.samples);
  EXPECT_EQ(std::count(first.begin(), first.end(), '\n'), 5);
  EXPECT_EQ(all.substr(0, first.size()), first);
}

TEST_F(RunTasks, DataHashIsOfTheQuestionsNotOfTheFile) {
  const std::string hash = run().results.at(0).data_hash,
                    rows = contents_of(folder_ / "piqa/validation.jsonl");
  request_.shots = 1;
  EXPECT_NE(run().results.at(0).data_hash, hash);
  request_.shots = 0;
  std::string array = "[" + rows;
  for (std::size_t at = 0; (at = array.find("}\n{", at)) != std::string::npos;) array.replace(at, 3, "},{");
  std::filesystem::remove(folder_ / "piqa/validation.jsonl");
  folder_.write("piqa/valid.json", array + "]");
  EXPECT_EQ(run().results.at(0).data_hash, hash);
  array.replace(array.find("goal 7"), 6, "goal x");
  folder_.write("piqa/valid.json", array + "]");
  EXPECT_NE(run().results.at(0).data_hash, hash);
}

TEST_F(RunTasks, AllDataIsReadBeforeAnythingIsScored) {
  request_.strict = true;
  request_.tasks = find_tasks({"piqa", "sciq"}, {});
  EXPECT_TRUE(contains(refusal(), "sciq: no data"));
  EXPECT_EQ(scorer_.calls, 0);
}

TEST_F(RunTasks, ContinuationsThatDoNotFitShowBeforeAnythingIsScored) {
  request_.tasks = find_tasks({"piqa", "sciq"}, {});
  const auto row = [](const std::string& answer) {
    return fmt::format(R"({{"question":"q","distractor1":"a","distractor2":"b","distractor3":"c",)"
                       R"("correct_answer":"{}","support":""}})"
                       "\n",
                       answer);
  };
  const std::string path = folder_.write("sciq/test.jsonl", row("short") + "\n" + row("rather long"));
  request_.context = 12;  // " rather long" has as many tokens
  EXPECT_EQ(run().results.size(), 2u);
  request_.context = 11;
  request_.samples = folder_ / "samples.jsonl";
  request_.strict = true;
  const std::string why = refusal();
  EXPECT_TRUE(contains(why, "sciq: " + path + ": row 3: a continuation of 12 tokens")) << why;
  EXPECT_EQ(scorer_.calls, 0);
  request_.limit = 1;  // which leaves it out
  EXPECT_EQ(run().results.size(), 2u);
  request_.limit = 0;
  request_.strict = false;
  const EvalReport rest = run();
  ASSERT_EQ(rest.results.size(), 2u);
  EXPECT_EQ(rest.results[1].documents, 1);
  EXPECT_EQ(rest.results[1].documents_in_split, 2);
  ASSERT_EQ(rest.left_out.size(), 1u);
  EXPECT_EQ(rest.left_out[0].task, "sciq");
  EXPECT_EQ(rest.left_out[0].documents, 1);
  EXPECT_TRUE(contains(rest.left_out[0].reason, path + ": row 3: a continuation of 12 tokens"));
  request_.context = 1;  // then nothing fits
  request_.samples = "";
  EXPECT_TRUE(contains(refusal(), "none of the tasks can be scored"));
  EXPECT_EQ(scorer_.calls, 0);
}

TEST_F(RunTasks, ATaskWithoutItsDataIsLeftOut) {
  const TaskResult alone = run().results.at(0);
  request_.tasks = find_tasks({"sciq", "piqa"}, {});
  const EvalReport report = run();
  ASSERT_EQ(report.results.size(), 1u);
  EXPECT_EQ(report.results[0].data_hash, alone.data_hash);
  EXPECT_EQ(report.results[0].headline(), alone.headline());
  ASSERT_EQ(report.left_out.size(), 1u);
  EXPECT_EQ(report.left_out[0].documents, 0);
  EXPECT_TRUE(contains(report.left_out[0].reason, "sciq: no data"));
  request_.tasks = find_tasks({"sciq"}, {});  // alone it is an error
  EXPECT_TRUE(contains(refusal(), "sciq: no data"));
}

TEST_F(RunTasks, AFileThatAnotherEvaluationWritesIsRefused) {
  request_.samples = folder_.write("samples.jsonl", "");
  const int other = ::open(request_.samples.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::flock(other, LOCK_EX | LOCK_NB), 0);
  EXPECT_TRUE(contains(refusal(), "another evaluation is writing it"));
  ::close(other);
  EXPECT_EQ(run().results.size(), 1u);
}

TEST_F(RunTasks, InterruptedItGoesOnFromItsSamples) {
  request_.shots = 1;
  const TaskResult whole = run().results.at(0);

  request_.samples = folder_ / "samples.jsonl";
  scorer_ = {.requests_allowed = 7};  // three documents, and half of the fourth
  EXPECT_THROW(run_tasks(request_, *bytes_, scorer_.function(), {}), std::runtime_error);
  const TaskResult rest = run().results.at(0);
  EXPECT_EQ(scorer_.requests, 20 - 6);
  EXPECT_EQ(rest.find(Metric::kAccuracy)->value, whole.find(Metric::kAccuracy)->value);
  EXPECT_EQ(rest.data_hash, whole.data_hash);
  run();
  EXPECT_EQ(scorer_.requests, 0);  // nothing left to do

  Index lines = 0;
  std::istringstream text(contents_of(request_.samples));
  for (std::string line; std::getline(text, line); ++lines) {
    const Json record = parse_json(line);
    EXPECT_EQ(record["doc_id"], lines);
    EXPECT_EQ(record["task"], "piqa");
    EXPECT_EQ(record["resps"].size(), 2u);
    EXPECT_EQ(record["arguments"][0][1], " aa");
    EXPECT_EQ(record["acc"].get<double>() == 1, lines % 2 == 0);
  }
  EXPECT_EQ(lines, 10);
}

TEST_F(RunTasks, ALineCutOffIsScoredAgain) {
  request_.samples = folder_ / "samples.jsonl";
  run();
  const std::string whole = contents_of(request_.samples);
  folder_.write("samples.jsonl", whole.substr(0, whole.size() - 20));
  run();
  EXPECT_EQ(scorer_.requests, 2);
  EXPECT_EQ(contents_of(request_.samples), whole);
}

TEST_F(RunTasks, SamplesOfSomethingElseAreRefused) {
  request_.samples = folder_ / "samples.jsonl";
  run();
  const std::string whole = contents_of(request_.samples);
  request_.model_hash = "def";
  EXPECT_TRUE(contains(refusal(), "samples.jsonl:1: scored with another model"));
  request_.model_hash = "abc";
  request_.shots = 1;
  EXPECT_TRUE(contains(refusal(), "scored with 0 shots, not 1"));
  request_.shots = 0;
  folder_.write("sciq/test.jsonl", R"({"question":"q","distractor1":"a","distractor2":"b","distractor3":"c",)"
                                   R"("correct_answer":"d","support":""})");
  request_.tasks = find_tasks({"sciq"}, {});
  EXPECT_TRUE(contains(refusal(), "for the task piqa, which is not asked for"));
  request_.tasks = find_tasks({"piqa", "sciq"}, {});
  run();
  EXPECT_EQ(scorer_.requests, 4);  // sciq's only
  request_.tasks = find_tasks({"piqa"}, {});
  request_.tasks[0].version = 7;
  folder_.write("samples.jsonl", whole);
  EXPECT_TRUE(contains(refusal(), "with version 1 of the task piqa"));
  request_.tasks[0].version = 1;
  std::string rows = contents_of(folder_ / "piqa/validation.jsonl");
  rows.replace(rows.find("goal 7"), 6, "goal x");
  folder_.write("piqa/validation.jsonl", rows);
  EXPECT_TRUE(contains(refusal(), "samples.jsonl:8: document 7 of piqa was another"));
  request_.tasks = find_tasks({"sciq", "piqa"}, {});
  EXPECT_TRUE(contains(refusal(), "document 7 of piqa was another"));
  EXPECT_EQ(scorer_.calls, 0);
  for (const char* line :
       {"7\n", "{}\n", "hello\n", "{\"event\":\"sample\",\"task\":3}\n", "{\"event\":\"step\"}\n", "\n"}) {
    folder_.write("samples.jsonl", line);
    EXPECT_TRUE(contains(refusal(), "samples.jsonl:1: ")) << line;
    EXPECT_EQ(contents_of(request_.samples), line);  // a stranger's file stays as it is
  }
}

TEST(FindTasks, ByNameAndAll) {
  EXPECT_EQ(find_tasks({"all"}, {}).size(), 8u);
  EXPECT_EQ(find_tasks({"piqa", "all", "lambada_openai"}, {}).size(), 9u);
  EXPECT_EQ(find_tasks({"all"}, {})[0].name, "arc_challenge");
  EXPECT_TRUE(
      contains(message_of<UserError>([] { find_tasks({"hellaswg"}, {}); }), "did you mean 'hellaswag'?"));
}

}  // namespace
}  // namespace ddl
