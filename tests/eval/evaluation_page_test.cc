// The example of docs/evaluation.md, as it stands there.
#include <gtest/gtest.h>

#include "eval/eval_testing.h"
#include "eval/run_tasks.h"
#include "test_folder.h"

namespace ddl {
namespace {

// What stands between ```kind and ``` for the first time after `heading`.
std::string block_of(const std::string& page, const std::string& heading, const std::string& kind) {
  const std::size_t section = page.find(heading), open = page.find("```" + kind + "\n", section);
  if (section == std::string::npos || open == std::string::npos) return "";
  const std::size_t begin = page.find('\n', open) + 1;
  return page.substr(begin, page.find("```", begin) - begin);
}

TEST(CustomTask, TheExampleOfThePageRuns) {
  const std::string page = contents_of(DDL_SOURCE_DIR "/docs/evaluation.md");
  const std::string toml = block_of(page, "## A task of your own", "toml");
  const std::string rows = block_of(page, "## A task of your own", "json");
  ASSERT_FALSE(toml.empty());
  ASSERT_FALSE(rows.empty());
  const TestFolder folder;
  folder.write("capitals/test.jsonl", rows);
  EvalRequest request;
  request.tasks = find_tasks({"capitals"}, {parse_task(toml, "capitals.toml")});
  request.data = folder.path();
  std::vector<std::string> contexts;
  const auto bytes = load_tokenizer("bytes");
  // A model that likes Oslo and Lima.
  const auto score = [&](std::span<const ScoreRequest> requests,
                         FunctionRef<void(Index, const Score&)> scored) {
    for (Index i = 0; i < std::ssize(requests); ++i) {
      const ScoreRequest& r = requests[i];
      contexts.push_back(bytes->decode(std::vector<TokenId>(r.context.begin(), r.context.end())));
      const std::string city =
          bytes->decode(std::vector<TokenId>(r.continuation.begin(), r.continuation.end()));
      scored(i, {city == " Oslo" || city == " Lima" ? -1.0 : -9.0, false});
    }
  };
  const TaskResult result = run_tasks(request, *bytes, score, {}).results.at(0);
  EXPECT_EQ(result.documents, 2);
  EXPECT_EQ(result.find(Metric::kAccuracy)->value, 1);
  EXPECT_EQ(contexts.front(), "Question: What is the capital of Peru?\nAnswer:");
  EXPECT_EQ(contexts.back(), "Question: What is the capital of Norway?\nAnswer:");
}

// Every filter the page names exists, and every filter there is stands on the page.
TEST(CustomTask, ThePageNamesEveryFilter) {
  const std::string page = contents_of(DDL_SOURCE_DIR "/docs/evaluation.md");
  for (const std::string& name : text_filter_names()) EXPECT_TRUE(contains(page, "`" + name + "`")) << name;
}

}  // namespace
}  // namespace ddl
