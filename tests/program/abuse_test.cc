// Files and folders that are not what they should be, given to the program: it must say which one, and end with 2.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "core/record.h"
#include "program/program_run.h"
#include "test_folder.h"

namespace ddl {
namespace {

namespace fs = std::filesystem;

class Abuse : public ProgramRun {
 protected:
  // Ends with 2, and says each of these.
  void expect_refused(const std::string& command, const std::vector<std::string>& said) const {
    const Result result = run(command);
    EXPECT_EQ(result.code, 2) << command << "\n" << result.err;
    for (const std::string& part : said)
      EXPECT_TRUE(contains(result.err, part)) << command << "\n" << result.err;
    for (const char* raw : {"json.exception", "unexpected error", "bug in ddl"})
      EXPECT_FALSE(contains(result.err, raw)) << command << "\n" << result.err;
  }
  void make_dataset() const {
    std::string text;
    for (int i = 0; i < 200; ++i) text += "some words and more of them " + std::to_string(i) + "\n";
    folder_.write("in.txt", text);
    run_well("ddl data prepare in.txt --tokenizer bytes --out set --val-fraction 0.2");
  }
  // A model of bytes with a context of 48, in the folder `run`.
  void make_run() const {
    make_dataset();
    run_well(
        "ddl train --data set --out run --set train.steps=1 --set train.batch=1 --set model.layers=1"
        " --set model.width=32 --set model.heads=2 --set model.context=48 --set model.precision=f32"
        " --set log.floor=false --set eval.windows=1");
  }
};

TEST_F(Abuse, AManifestOfADatasetWithOtherTypes) {
  make_dataset();
  const std::string whole = contents_of(folder_ / "set/dataset.json");
  const auto expect = [&](const char* command, const char* member, const std::function<void(Json&)>& change) {
    Json json = parse_json(whole);
    change(json);
    folder_.write("set/dataset.json", to_text(json));
    expect_refused(command, {"dataset.json", member});
  };
  for (const char* member : {"format", "version", "vocab_size", "end_of_text", "train", "val", "tokenizer"}) {
    expect("ddl data info set", member, [&](Json& j) { j.erase(member); });
    const std::string named =
        member == std::string("format") || member == std::string("version") ? "set" : member;
    for (const Json& other : {Json(nullptr), Json(-1), Json(1e300), Json("text"), Json::array({1})})
      if (!(other.is_string() && member == std::string("tokenizer")))
        expect("ddl data info set", named.c_str(), [&](Json& j) { j[member] = other; });
  }
  expect("ddl data info set", "train.shards", [](Json& j) { j["train"]["shards"] = 3; });
  expect("ddl data info set", "train.shards[0].file", [](Json& j) { j["train"]["shards"][0]["file"] = 3; });
  expect("ddl data info set", "file", [](Json& j) { j["train"]["shards"][0]["file"] = "../x.bin"; });
  expect("ddl data info set", "tokens", [](Json& j) { j["val"]["shards"][0].erase("tokens"); });
  expect("ddl data info set --verify", "sha256", [](Json& j) { j["train"]["shards"][0]["sha256"] = 1; });
  expect("ddl data info set --verify", "sha256", [](Json& j) { j["train"]["shards"][0].erase("sha256"); });
  expect("ddl data prepare in.txt --tokenizer bytes --out set --force", "val",
         [](Json& j) { j["val"] = Json::array(); });
  folder_.write("set/dataset.json", "[");
  expect_refused("ddl train --data set --out run", {"set/dataset.json"});
}

TEST_F(Abuse, SmallWeightsAreForInference) {
  make_run();
  run_well("ddl quantize run --weights q4 --out small");
  run_well("ddl generate small --prompt so --max-new-tokens 3");
  run_well("ddl generate run --weights q8 --prompt so --max-new-tokens 3");
  run_well("ddl eval small --text in.txt");
  const std::string note = "q4 weights run on portable code";
  EXPECT_NE(run("DDL_ISA=scalar ddl generate small --prompt so --max-new-tokens 3").err.find(note),
            std::string::npos);
  EXPECT_EQ(run("DDL_ISA=scalar ddl generate run --weights f32 --prompt so --max-new-tokens 3").err, "");
  expect_refused("ddl train --data set --out second --from small", {"small", "its weights are q4"});
  expect_refused("ddl quantize small --out smaller", {"small", "q4 already"});
  expect_refused("ddl quantize run --out small", {"small", "not empty"});
  expect_refused("ddl quantize run --weights q5 --out other", {"--weights"});
  expect_refused("ddl generate run --weights q8 --precision bf16 --prompt so", {"leave one out"});
}

TEST_F(Abuse, FilesWithoutEnd) {
  if (!fs::exists("/dev/zero")) GTEST_SKIP() << "needs /dev/zero";
  make_run();
  for (const char* command :
       {"generate run --prompt-file /dev/zero", "train /dev/zero --data set --out other",
        "eval run --data set --task-file /dev/zero", "data prepare in.txt --tokenizer /dev/zero --out x"})
    expect_refused("ddl " + std::string(command), {"/dev/zero"});
  expect_refused("ddl generate run - < /dev/zero", {"standard input", "MB"});
  fs::remove(folder_ / "set/dataset.json");
  fs::create_symlink("/dev/zero", folder_ / "set/dataset.json");
  expect_refused("ddl data info set", {"set/dataset.json", "at most"});
}

TEST_F(Abuse, LinksInACircle) {
  make_dataset();
  fs::create_symlink("other", folder_ / "circle");
  fs::create_symlink("circle", folder_ / "other");
  for (const char* command :
       {"data prepare in.txt --tokenizer bytes --out circle", "train --data set --out circle",
        "train --data circle --out c", "train circle --data set", "generate circle --prompt x", "info circle",
        "data generate stories --docs 1 --out circle", "data prepare circle --tokenizer bytes --out c",
        "tokenizer train in.txt --out circle", "tokenizer info circle", "eval circle --text in.txt",
        "export circle --out c"})
    expect_refused("ddl " + std::string(command), {"circle"});
  // Inside a folder such a link is no file, as one that leads nowhere.
  folder_.write("texts/x.txt", "some text");
  fs::create_symlink("loop.txt", folder_ / "texts/loop.txt");
  fs::create_symlink(".hidden", folder_ / "texts/.hidden");
  run_well("ddl data prepare texts --tokenizer bytes --out from-texts --val-fraction 0");
}

TEST_F(Abuse, NamesThatAreTooLong) {
  make_run();
  const std::string name(3000, 'x');
  folder_.write("long.toml",
                "task = \"" + name +
                    "\"\nvalidation_split = \"v\"\ncontext = \"{{a}}\"\nchoices = [\"x\", \"y\"]\n"
                    "answer = \"{{b}}\"\nmetrics = [\"acc\"]\n");
  folder_.write("split.toml", "task = \"t\"\nvalidation_split = \"" + name +
                                  "\"\ncontext = \"{{a}}\"\nchoices = [\"x\", \"y\"]\nanswer = \"{{b}}\"\n"
                                  "metrics = [\"acc\"]\n");
  expect_refused("ddl eval run --data set --task-file long.toml", {"long.toml", "at most"});
  expect_refused("ddl eval run --data set --task-file split.toml", {"split.toml", "at most"});
  expect_refused("ddl eval run --data " + name + " --tasks piqa", {name});
  expect_refused("ddl train --data set --out " + name, {name});
  expect_refused("ddl data prepare in.txt --tokenizer bytes --out " + name, {name});
}

TEST_F(Abuse, WhatIsWrongIsNamed) {
  make_run();
  folder_.write("blank.txt", "");
  expect_refused("ddl tokenizer train blank.txt --out t", {"blank.txt"});
  // Weights so large that logits overflow: every number in the file is finite.
  run_well("ddl export run --layout own --out model");
  std::string weights = contents_of(folder_ / "model/model.safetensors");
  std::uint64_t header = 0;
  std::memcpy(&header, weights.data(), sizeof header);
  std::fill(weights.begin() + static_cast<std::ptrdiff_t>(8 + header), weights.end(), '\x7f');
  folder_.write("model/model.safetensors", weights);
  expect_refused("ddl generate model --prompt x", {"model: ", "logit"});
}

TEST_F(Abuse, ALinkIsNeverFollowedWhenClearing) {
  folder_.write("in.txt", "some text");
  folder_.write("precious/.ddl-incomplete", "");
  folder_.write("precious/kept.txt", "kept");
  fs::create_symlink("precious", folder_ / "target.partial");
  expect_refused("ddl data prepare in.txt --tokenizer bytes --out target",
                 {"target.partial", "symbolic link"});
  EXPECT_EQ(contents_of(folder_ / "precious/kept.txt"), "kept");
  // Nor is what the marker leads to written over.
  fs::remove(folder_ / "target.partial");
  fs::create_directory(folder_ / "target.partial");
  fs::create_symlink("../precious/kept.txt", folder_ / "target.partial/.ddl-incomplete");
  expect_refused("ddl data prepare in.txt --tokenizer bytes --out target",
                 {".ddl-incomplete", "symbolic link"});
  EXPECT_EQ(contents_of(folder_ / "precious/kept.txt"), "kept");
}

TEST_F(Abuse, TemporaryFilesOfAKilledProgramDoNotPileUp) {
  const auto left = [&] {
    int count = 0;
    for (const auto& entry : fs::directory_iterator(folder_ / "texts"))
      count += contains(entry.path().filename().string(), ".tmp");
    return count;
  };
  fs::create_directory(folder_ / "texts");
  folder_.write("texts/x.jsonl.tmp", "not one of them");
  for (int i = 0; i < 3; ++i)
    run(DDL_PROGRAM
        " data generate stories --docs 3000000 --out texts/x.jsonl & "
        "while ! ls texts/x.jsonl.tmp[0-9]*; do sleep 0.01; done; kill -9 $!; wait");
  EXPECT_LE(left(), 2);
  run_well("ddl data generate stories --docs 10 --out texts/x.jsonl");
  EXPECT_EQ(left(), 1);
  // One that is being written stays.
  run(DDL_PROGRAM
      " data generate stories --docs 3000000 --out texts/x.jsonl & first=$!; "
      "while ! ls texts/x.jsonl.tmp[0-9]*; do sleep 0.01; done; sleep 0.2; "
      "ddl data generate stories --docs 10 --out texts/x.jsonl; ls texts > listed; kill -9 $first; wait");
  const std::string listed = contents_of(folder_ / "listed");
  EXPECT_EQ(std::count(listed.begin(), listed.end(), '\n'), 3) << listed;
}

TEST_F(Abuse, TasksThatCannotBeScoredAreLeftOut) {
  make_run();
  folder_.write("tasks/piqa/validation.jsonl", R"({"goal":"g","sol1":"a","sol2":"b","label":0})"
                                               "\n"
                                               R"({"goal":"g","sol1":")" +
                                                   std::string(100, 'x') + R"(","sol2":"b","label":0})" +
                                                   "\n");
  const Result text = run("ddl eval run --tasks piqa,sciq --data tasks");
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_TRUE(contains(text.out, "left out: sciq: no data") &&
              contains(text.out, "left out: piqa, 1 document"))
      << text.out;
  const Result json = run("ddl eval run --tasks piqa,sciq --data tasks --json");
  const Json record = parse_json(json.out);
  ASSERT_TRUE(record.is_object()) << json.err;
  EXPECT_EQ(record["n-samples"]["piqa"]["effective"], 1);
  EXPECT_EQ(record["left_out"].size(), 2u);
  EXPECT_EQ(record["left_out"][0]["task"], "sciq");
  EXPECT_EQ(record["left_out"][0]["documents"], "all");
  EXPECT_EQ(record["left_out"][1]["documents"], 1);
  expect_refused("ddl eval run --tasks piqa,sciq --data tasks --strict", {"sciq: no data"});
  expect_refused("ddl eval run --tasks piqa --data tasks --strict", {"row 2", "101 tokens"});
  expect_refused("ddl eval run --tasks sciq --data tasks", {"sciq: no data"});
}

TEST_F(Abuse, TwoEvaluationsDoNotWriteOneFile) {
  make_run();
  folder_.write("tasks/piqa/validation.jsonl", R"({"goal":"g","sol1":"a","sol2":"b","label":0})"
                                               "\n");
  const std::string eval = DDL_PROGRAM " eval run --tasks piqa --data tasks --samples samples.jsonl";
  expect_refused("flock samples.jsonl " + eval, {"samples.jsonl: another evaluation is writing it"});
  EXPECT_EQ(contents_of(folder_ / "samples.jsonl"), "");
  run_well(eval);
}

}  // namespace
}  // namespace ddl
