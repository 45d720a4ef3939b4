// Files of a task in the forms people have, and errors that say where.
#include "eval/task_rows.h"

#include <gtest/gtest.h>

#include <cctype>

#include "compress.h"
#include "core/error.h"
#include "data/document_source.h"
#include "eval/eval_testing.h"
#include "shared_data.h"
#include "test_folder.h"

namespace ddl {
namespace {

const std::string kRow1 = R"({"goal":"g1","sol1":"a","sol2":"b","label":1})";
const std::string kRow2 = R"({"goal":"g2","sol1":"c","sol2":"d","label":0})";

std::vector<TaskDocument> piqa(const TestFolder& folder) {
  return read_split(builtin("piqa"), folder.path(), "validation");
}
std::string piqa_error(const TestFolder& folder) {
  return message_of<UserError>([&] { piqa(folder); });
}

const std::vector<TaskDocument> kExpected = {{{"Question: g1\nAnswer:"}, {"a", "b"}, 1},
                                             {{"Question: g2\nAnswer:"}, {"c", "d"}, 0}};

TEST(TaskRows, JsonLinesUnderEveryName) {
  for (const char* name :
       {"validation.jsonl", "valid.jsonl", "dev.jsonl", "validation.json", "data/validation.jsonl"}) {
    const TestFolder folder;
    folder.write(std::string("piqa/") + name, "\xef\xbb\xbf" + kRow1 + "\r\n\n" + kRow2);
    EXPECT_EQ(piqa(folder), kExpected) << name;
  }
}

TEST(TaskRows, JsonArray) {
  const TestFolder folder;
  folder.write("piqa/validation.json", "\n [" + kRow1 + ",\n" + kRow2 + "]\n");
  EXPECT_EQ(piqa(folder), kExpected);
}

TEST(TaskRows, Gzip) {
  const TestFolder folder;
  folder.write("piqa/validation.jsonl.gz", gzip(kRow1 + "\n" + kRow2 + "\n"));
  EXPECT_EQ(piqa(folder), kExpected);
}

TEST(TaskRows, LabelsFromAFileBeside) {
  const TestFolder folder;
  folder.write("piqa/valid.jsonl", R"({"goal":"g1","sol1":"a","sol2":"b"})"
                                   "\n"
                                   R"({"goal":"g2","sol1":"c","sol2":"d"})"
                                   "\n");
  EXPECT_TRUE(contains(piqa_error(folder), "expected the columns goal, sol1, sol2, label (label also from"));
  folder.write("piqa/valid-labels.lst", "1\n0\n");
  EXPECT_EQ(piqa(folder), kExpected);
  folder.write("piqa/valid-labels.lst", "1\n");
  EXPECT_TRUE(contains(piqa_error(folder), "row 2:"));
  EXPECT_TRUE(contains(piqa_error(folder), "valid-labels.lst holds 1 labels only"));
  folder.write("piqa/valid-labels.lst", "1\n0\n1\n");
  EXPECT_TRUE(contains(piqa_error(folder), "3 labels for 2 rows"));
  folder.write("piqa/valid-labels.lst", "1\nx\n");
  EXPECT_TRUE(contains(piqa_error(folder), "row 2: the answer 'x' is none of 0, 1"));
}

TEST(TaskRows, MissingFilesAreNamed) {
  const TestFolder folder;
  const std::string no_folder = piqa_error(folder);
  EXPECT_TRUE(contains(
      no_folder, "piqa: no data for its validation split in " + folder.path() + "/piqa, which is no folder"));
  EXPECT_TRUE(contains(no_folder, "validation.jsonl, valid.jsonl, dev.jsonl"));
  folder.write("piqa/test.jsonl", kRow1);
  EXPECT_FALSE(contains(piqa_error(folder), "which is no folder"));
  EXPECT_TRUE(contains(message_of<UserError>([&] { read_split(builtin("piqa"), folder.path(), "train"); }),
                       "no data for its train split"));
}

TEST(TaskRows, ErrorsNameTaskFileAndRow) {
  const TestFolder folder;
  const std::string path = folder.write("piqa/validation.jsonl",
                                        kRow1 + "\n\n" + R"({"goal":"g","sol1":"a","sol2":"b","label":9})");
  EXPECT_EQ(piqa_error(folder), "piqa: " + path + ": row 3: the answer '9' is none of 0, 1");
  folder.write("piqa/validation.jsonl", kRow1 + "\n{\"goal\":");
  EXPECT_TRUE(contains(piqa_error(folder), path + ": row 2: not valid JSON"));
  folder.write("piqa/validation.jsonl", "{\"goal\":\"\xff\",\"sol1\":\"a\",\"sol2\":\"b\",\"label\":1}");
  EXPECT_TRUE(contains(piqa_error(folder), "row 1: not valid JSON"));
  folder.write("piqa/validation.jsonl", "7\n");
  EXPECT_TRUE(contains(piqa_error(folder), "row 1: a whole number, expected an object"));
  folder.write("piqa/validation.jsonl", "[" + kRow1 + ", []]");
  EXPECT_TRUE(contains(piqa_error(folder), "row 2: a list, expected an object"));
  folder.write("piqa/validation.jsonl", " \n");
  EXPECT_EQ(piqa_error(folder), "piqa: " + path + ": no rows");
  folder.write("piqa/validation.jsonl", R"({"sentence":"a _ b","option1":"a","option2":"b","answer":"1"})");
  EXPECT_TRUE(contains(piqa_error(folder), "row 1: expected the columns goal, sol1, sol2, label"));
  EXPECT_TRUE(
      contains(piqa_error(folder), "found sentence, option1, option2, answer: a file of another task?"));
  folder.write("piqa/validation.jsonl", "{}");
  EXPECT_TRUE(contains(piqa_error(folder), "found none"));
}

TEST(TaskRows, DeepNestingIsARefusalNotACrash) {
  const TestFolder folder;
  const std::string deep(200000, '['), close(200000, ']');
  folder.write("arc_easy/test.jsonl", R"({"question":"q","answerKey":"A","choices":)" + deep + close + "}");
  EXPECT_TRUE(contains(message_of<UserError>([&] { read_split(builtin("arc_easy"), folder.path(), "test"); }),
                       "row 1: not valid JSON"));
}

TEST(TaskRows, ParquetShardsMustAllBeThere) {
  const TestFolder folder;
  folder.write("piqa/validation-00000-of-00002.parquet", "PAR1");
  EXPECT_TRUE(contains(piqa_error(folder), "1 files, expected 2"));
  folder.write("piqa/validation-00001-of-00002.parquet", "PAR1");
  const std::string error = piqa_error(folder);
  EXPECT_TRUE(contains(error, "validation-00000-of-00002.parquet"));
  EXPECT_TRUE(
      contains(error, parquet_is_built_in() ? "not a readable Parquet file" : "built without Parquet"));
}

DDL_TEST_WITH_SHARED(TaskRows, SharedDataHasTheRowsItSays, "eval") {
  const std::string data = shared_data("eval").string();
  const auto count = [&](const char* task, const char* split) {
    return std::ssize(read_split(builtin(task), data, split));
  };
  EXPECT_EQ(count("arc_easy", "test"), 2376);
  EXPECT_EQ(count("arc_easy", "train"), 2251);
  EXPECT_EQ(count("piqa", "validation"), 1838);
  EXPECT_EQ(count("piqa", "train"), 16113);
  EXPECT_EQ(count("hellaswag", "validation"), 200);
  EXPECT_EQ(count("openbookqa", "test"), 100);
  EXPECT_EQ(count("sciq", "test"), 100);
  EXPECT_EQ(count("social_iqa", "validation"), 300);
  EXPECT_EQ(count("winogrande", "validation"), 300);
  EXPECT_EQ(count("lambada_openai", "test"), 200);
}

TEST(TaskRows, StrayWhiteSpaceIsKept) {
  const TestFolder folder;
  folder.write("piqa/validation.jsonl", R"({"goal":" g ","sol1":"a\n","sol2":"\tb ","label":1})");
  EXPECT_EQ(piqa(folder), (std::vector<TaskDocument>{{{"Question:  g \nAnswer:"}, {"a\n", "\tb "}, 1}}));
}

// The specification's counts of PIQA's stray white space: a reader that tidies up would lose them.
DDL_TEST_WITH_SHARED(TaskRows, PiqaKeepsItsStrayWhiteSpace, "eval/piqa") {
  const auto documents = read_split(builtin("piqa"), shared_data("eval").string(), "validation");
  Index ends[2] = {}, begins[2] = {};
  for (const TaskDocument& document : documents)
    for (std::size_t i = 0; i < 2; ++i) {
      ends[i] += std::isspace(static_cast<unsigned char>(document.choices[i].back())) != 0;
      begins[i] += std::isspace(static_cast<unsigned char>(document.choices[i].front())) != 0;
    }
  EXPECT_EQ(ends[0], 116);
  EXPECT_EQ(ends[1], 114);
  EXPECT_EQ(begins[0], 1);
  EXPECT_EQ(begins[1], 1);
}

}  // namespace
}  // namespace ddl
