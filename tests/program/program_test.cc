// The program as a user starts it: what it prints, where it prints it, and its exit code.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <filesystem>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "core/record.h"
#include "program/program_run.h"
#include "test_folder.h"

namespace ddl {
namespace {

class Program : public ProgramRun {
 protected:
  std::vector<Json> records(const std::string& command) {
    const Result result = run(command);
    EXPECT_EQ(result.code, 0) << command << "\n" << result.err;
    std::vector<Json> all;
    std::istringstream lines(result.out);
    for (std::string line; std::getline(lines, line);) all.push_back(parse_json(line));
    for (const Json& record : all) EXPECT_TRUE(record.is_object()) << result.out;
    return all;
  }
  // A model of bytes with a context of 48, in the folder `run`.
  void train(const std::string& data) {
    run_well("ddl train --data " + data +
             " --out run --set train.steps=1 --set train.batch=1 --set model.layers=1 --set model.width=32"
             " --set model.heads=2 --set model.context=48 --set model.vocab=320 --set model.precision=f32"
             " --set log.floor=false --set eval.windows=1");
  }
  // nanoGPT's form: bare uint16, no tokenizer.
  void write_bare_shards() {
    std::string tokens;
    for (int i = 0; i < 400; ++i) tokens += {static_cast<char>('a' + i * i % 26), '\0'};
    folder_.write("bare/train.bin", tokens);
    folder_.write("bare/val.bin", tokens.substr(0, 300));
  }
};

TEST_F(Program, SaysItsVersion) {
  const auto all = records("DDL_ISA=scalar ddl version --json");
  ASSERT_EQ(all.size(), 1u);
  const Json& record = all[0];
  EXPECT_EQ(record["version"], DDL_VERSION);
  EXPECT_EQ(record["isa"], "scalar");
  EXPECT_EQ(record["available_isas"].at(0), "scalar");
  const std::string commit = record["commit"];
  const std::string hash = commit.substr(0, commit.find("-dirty"));
  EXPECT_TRUE(commit == "unknown" ||
              (hash.size() >= 7 && hash.find_first_not_of("0123456789abcdef") == hash.npos))
      << commit;
  const Result text = run("DDL_ISA=scalar ddl --version");
  EXPECT_EQ(text.code, 0);
  EXPECT_EQ(text.out.find("ddl " DDL_VERSION "\n"), 0u) << text.out;
  for (const char* key : {"commit", "compiler", "build_type", "isa"})
    EXPECT_TRUE(contains(text.out, " " + record[key].get<std::string>())) << key << "\n" << text.out;
  EXPECT_EQ(run("DDL_ISA=scalar ddl version").out, text.out);
  EXPECT_EQ(records("DDL_ISA=scalar ddl --version --json"), all);
}

TEST_F(Program, OutputThatFindsNoRoomIsAnError) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "needs /dev/full";
  write_bare_shards();
  for (const std::string command :
       {"tokenizer encode bytes hello", "tokenizer info bytes --json", "info --preset tiny --json",
        "data info bare", "data generate overwrite --docs 2", "--help"}) {
    const Result result = run("ddl " + command + " > /dev/full");
    EXPECT_EQ(result.code, 2) << command;
    EXPECT_TRUE(contains(result.err, "standard output") && !contains(result.err, "unexpected"))
        << command << "\n"
        << result.err;
  }
  // More than a buffer, which fails half way.
  const Result result =
      run("head -c 300000 /dev/zero | " DDL_PROGRAM " tokenizer encode bytes - > /dev/full");
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
}

TEST_F(Program, AFileThatMayNotGrowIsNamed) {
  const Result result = run("ulimit -f 8; ddl data generate overwrite --docs 5000 --out x.jsonl");
  EXPECT_EQ(result.code, 2);
  EXPECT_TRUE(contains(result.err, "x.jsonl") && contains(result.err, "ulimit -f")) << result.err;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "x.jsonl"));
}

// The engine that runs the oracle goes through every command, and finds what the native one does.
TEST_F(Program, TheReferenceEngineTrainsWritesAndScores) {
  write_bare_shards();
  folder_.write("text.txt", "a small text");
  for (const std::string engine : {"native", "reference"}) {
    const std::string out = engine + "-run";
    run_well("ddl train --data bare --out " + out + " --engine " + engine +
             " --set train.steps=2 --set train.batch=1 --set train.lr=0.01 --set model.layers=1 --set "
             "model.width=8"
             " --set model.heads=2 --set model.context=8 --set model.vocab=320 --set model.precision=f32"
             " --set log.floor=false --set eval.windows=2");
    run_well("ddl train --resume --out " + out + " --set train.steps=3");
  }
  const auto all = [&](const std::string& command) {
    return std::pair(run("ddl " + command + " --engine native --json"),
                     run("ddl " + command + " --engine reference --json"));
  };
  const auto [text, oracle_text] =
      all("generate reference-run --tokenizer bytes --prompt ab --temperature 0 --max-new-tokens 4 --weights "
          "f32");
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_EQ(oracle_text.code, 0) << oracle_text.err;
  EXPECT_EQ(parse_json(text.out)["text"], parse_json(oracle_text.out)["text"]);
  const auto [score, oracle_score] = all("eval native-run --tokenizer bytes --text text.txt");
  EXPECT_EQ(score.code, 0) << score.err;
  EXPECT_EQ(oracle_score.code, 0) << oracle_score.err;
  EXPECT_NEAR(parse_json(score.out)["loss"].get<double>(), parse_json(oracle_score.out)["loss"].get<double>(),
              1e-5);
  const auto last_loss = [&](const std::string& run) {
    std::istringstream lines(contents_of(folder_ / (run + "/metrics.jsonl")));
    double loss = 0;
    for (std::string line; std::getline(lines, line);)
      if (const Json record = parse_json(line); record["event"] == "step") loss = record["loss"];
    return loss;
  };
  EXPECT_NEAR(last_loss("reference-run"), last_loss("native-run"), 1e-4);
}

// What a user trained without thinking can be exported without thinking.
TEST_F(Program, ExportsTheDefaultModel) {
  write_bare_shards();
  train("bare");
  run_well("ddl export run --out exported");
  EXPECT_EQ(records("ddl info exported --json").at(0)["layout"], "own");
  EXPECT_EQ(records("ddl info exported --json").at(0)["config"]["compressor"], "sublayer");
  const Result released = run("ddl export run --layout reference --out released");
  EXPECT_EQ(released.code, 2);
  EXPECT_TRUE(contains(released.err, "one compressor for both") && contains(released.err, "--layout own"))
      << released.err;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "released"));
}

TEST_F(Program, InfoReadsAConfiguration) {
  folder_.write("c.toml", "preset = \"small\"\nmodel.residual = \"ddl-tc\"\nmodel.compressor = \"block\"\n");
  EXPECT_EQ(records("ddl info --config c.toml --json").at(0)["parameters"], 123854764);
  EXPECT_EQ(records("ddl info --preset small --residual ddl-tc --set model.compressor=block --json")
                .at(0)["parameters"],
            123854764);
  EXPECT_EQ(records("ddl info --residual baseline --json").at(0)["parameters"], 123590400);
}

TEST_F(Program, SeedsAreNotNegative) {
  folder_.write("in.txt", "text");
  for (const std::string command :
       {"data prepare in.txt --tokenizer bytes --out set", "data generate stories"})
    EXPECT_EQ(run("ddl " + command + " --seed -1").code, 2) << command;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "set"));
}

TEST_F(Program, HelpOfTokenizersFitsTheScreen) {
  for (const std::string command : {"encode", "decode", "info"}) {
    std::istringstream lines(run("ddl tokenizer " + command + " --help").out);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
  }
}

TEST_F(Program, HelpIsInPlainWords) {
  for (const std::string command :
       {"", "train", "generate", "eval", "info", "bench", "bench step", "bench decode", "data prepare"}) {
    const std::string help = run("ddl " + command + " --help").out;
    for (const char* dialect : {"beside", "o on ", "goes on", "interface", " a step ", " a token "})
      EXPECT_FALSE(contains(help, dialect)) << command << ": " << dialect << "\n" << help;
  }
}

TEST_F(Program, ATextFileForADatasetIsToldWhatToDo) {
  folder_.write("my.txt", "some text");
  const Result result = run("ddl train --data my.txt --out run");
  EXPECT_EQ(result.code, 2);
  EXPECT_TRUE(contains(result.err, "./ddl data prepare my.txt --tokenizer tokenizer --out data/my") ||
              contains(result.err, "/my.txt --tokenizer tokenizer --out data/my"))
      << result.err;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run"));
}

TEST_F(Program, BenchStepTakesSeveralRules) {
  const auto all = records(
      "ddl bench step --preset tiny --batch 1 --context 16 --steps 1 --residual baseline,ddl-cc --json");
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0]["residual"], "baseline");
  EXPECT_EQ(all[1]["residual"], "ddl-cc");
  EXPECT_TRUE(contains(run("ddl bench step --residual baseline,ddl-xx").err, "no residual rule 'ddl-xx'"));
}

TEST_F(Program, TheEndOfTrainingNamesTheNextStep) {
  write_bare_shards();
  train("bare");
  const std::string shown = contents_of(folder_ / "out");
  EXPECT_TRUE(contains(shown, "Next: ./ddl generate run --tokenizer TOKENIZER --prompt")) << shown;
}

// "big.txt: 131328 tokens, ..., 10%, ...": tokens that are scored, and their share of all.
TEST_F(Program, EvalShowsTheShareOfTheWorkThatIsDone) {
  if (run("command -v script").code != 0) GTEST_SKIP() << "needs script(1)";
  write_bare_shards();
  train("bare");
  std::string text;
  for (int i = 0; i < 40000; ++i) text += "some words and more of them " + std::to_string(i) + "\n";
  folder_.write("big.txt", text);
  const Result result =
      run("script -qec '" DDL_PROGRAM " eval run --tokenizer bytes --text big.txt' /dev/null");
  EXPECT_EQ(result.code, 0) << result.out;
  const std::regex shown("big.txt: ([0-9]+) tokens,[^%]* ([0-9]+)%");
  int lines = 0;
  for (std::sregex_iterator at(result.out.begin(), result.out.end(), shown), end; at != end; ++at, ++lines)
    EXPECT_NEAR(std::stod((*at)[2]), 100 * std::stod((*at)[1]) / static_cast<double>(text.size()), 3)
        << (*at)[0];
  EXPECT_GT(lines, 0) << result.out;
}

TEST_F(Program, SaysHowMuchWorkTrainingIsBeforeItBegins) {
  write_bare_shards();
  const Result result =
      run("ddl train --data bare --out run --set train.steps=3 --set train.batch=1 --set model.layers=1"
          " --set model.width=32 --set model.heads=2 --set model.context=48 --set model.vocab=320"
          " --set eval.windows=1");
  EXPECT_EQ(result.code, 0) << result.err;
  const std::size_t work = result.out.find("\n3 steps of 48 tokens, 0.375 passes over the data, about ");
  EXPECT_LT(work, result.out.find("step 1/3")) << result.out;
  EXPECT_TRUE(contains(result.out, "\nthe learning rate only rises: train.warmup is 100, train.steps 3\n"))
      << result.out;
}

// Another process has the processor while the floor is measured, and ends before the first step.
TEST_F(Program, NoStepIsFasterThanTheFloor) {
  if (run("taskset -c 0 true").code != 0) GTEST_SKIP() << "needs processor 0";
  write_bare_shards();
  const Result result =
      run("taskset -c 0 sh -c 'while :; do :; done' & other=$!; nice -n 5 taskset -c 0 " DDL_PROGRAM
          " train --data bare --out run --set train.steps=20 --set train.batch=16 --set model.layers=1"
          " --set model.width=256 --set model.heads=2 --set model.context=48 --set model.vocab=320"
          " --set eval.windows=1 --set log.screen_seconds=0 & run=$!;"
          " while kill -0 $run && ! grep -qs '\"event\":\"start\"' run/metrics.jsonl; do sleep 0.01; done;"
          " kill $other; wait $run");
  EXPECT_EQ(result.code, 0) << result.err;
  const std::regex share("([0-9]+)% of floor");
  int shares = 0;
  for (std::sregex_iterator at(result.out.begin(), result.out.end(), share), end; at != end; ++at, ++shares)
    EXPECT_LE(std::stod((*at)[1]), 100) << result.out;
  EXPECT_TRUE(shares > 0 || contains(result.out, "busy machine")) << result.out;
}

TEST_F(Program, TheConfigurationPageIsUpToDate) {
  EXPECT_EQ(run("ddl train --options --markdown").out, contents_of(DDL_SOURCE_DIR "/docs/configuration.md"))
      << "write it again: ./ddl train --options --markdown > docs/configuration.md";
  EXPECT_EQ(run("ddl train --markdown").code, 2);
}

TEST_F(Program, FindsALearningRateAndWritesNoRun) {
  run_well("ddl data generate overwrite --docs 60 --out text.jsonl");
  run_well("ddl data prepare text.jsonl --tokenizer bytes --out set");
  const std::string find =
      "ddl train --find-lr --data set --set train.batch=2 --set model.layers=1 --set model.width=32"
      " --set model.heads=2 --set model.context=48";
  const Result text = run(find);
  ASSERT_EQ(text.code, 0) << text.err;
  EXPECT_TRUE(contains(text.out, "Try --set train.lr=") && contains(text.out, "Smoothed loss against"))
      << text.out;
  const Json last = records(find + " --json").back();
  EXPECT_EQ(last["event"], "find_lr");
  EXPECT_GT(last["suggested_lr"], 1e-5);
  EXPECT_LT(last["suggested_lr"], last["lowest_loss_lr"]);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "runs"));
  EXPECT_TRUE(contains(run(find + " --out run").err, "--out"));
}

TEST_F(Program, SamplesWhileItTrains) {
  run_well("ddl data generate overwrite --docs 60 --out text.jsonl");
  run_well("ddl data prepare text.jsonl --tokenizer bytes --out set");
  const auto all = records(
      "ddl train --data set --out run --set train.steps=4 --set train.batch=1 --set model.layers=1"
      " --set model.width=32 --set model.heads=2 --set model.context=48 --set eval.windows=1"
      " --set log.floor=false --set log.sample_every=2 --set log.sample_prompt=a=3 --json");
  int samples = 0;
  for (const Json& record : all) {
    if (record["event"] != "sample") continue;
    ++samples;
    EXPECT_EQ(record["prompt"], "a=3");
    EXPECT_FALSE(record["text"].get<std::string>().empty());
  }
  EXPECT_EQ(samples, 2);
}

// A rate of 0 learns nothing: no validation after the first is better.
TEST_F(Program, StopsWhereNothingImproves) {
  write_bare_shards();
  const auto all = records(
      "ddl train --data bare --out run --set train.steps=40 --set train.batch=1 --set model.layers=1"
      " --set model.width=32 --set model.heads=2 --set model.context=48 --set model.vocab=320"
      " --set eval.windows=1 --set eval.every=1 --set log.floor=false --set train.lr=0 --set train.patience=3"
      " --json");
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(all.back()["event"], "done");
  EXPECT_EQ(all.back()["step"], 4);
  EXPECT_EQ(all.back()["stopped_early"], true);
}

// Both learn side by side until the time is over, and both are shown.
TEST_F(Program, DemonstratesTwoModelsInTurns) {
  const Result result = run("ddl demo --minutes 0.01 --out demo");
  EXPECT_EQ(result.code, 0) << result.err;
  for (const char* part : {"in turns", "for the rest of 1 s", "b baseline   d ddl-cc",
                           "A story by baseline:", "A story by ddl-cc:", "Next:"})
    EXPECT_TRUE(contains(result.out, part)) << part << "\n" << result.out;
}

TEST_F(Program, HelpOfTheDemoSaysWhereItGoes) {
  EXPECT_TRUE(contains(run("ddl demo --help").out, "(default: demo, or demo-2"));
}

TEST_F(Program, AConversationOnATerminal) {
  if (run("command -v script").code != 0) GTEST_SKIP() << "needs script(1)";
  write_bare_shards();
  train("bare");
  const Result result = run(
      "printf '/max 3\\nabc\\n/gates\\n/agane\\n\\n' | XDG_STATE_HOME=$PWD/state script -qec '" DDL_PROGRAM
      " generate run --tokenizer bytes' /dev/null");
  EXPECT_EQ(result.code, 0) << result.out;
  for (const char* part :
       {"/help lists commands", "gate                 mean", "0 attention", "did you mean /again?"})
    EXPECT_TRUE(contains(result.out, part)) << part << "\n" << result.out;
}

// Published data from a mirror of files: what the network would give.
TEST_F(Program, GetsPublishedData) {
  if (run("command -v curl").code != 0) GTEST_SKIP() << "needs curl";
  const std::string get = "DDL_DATA_MIRROR=file://$PWD/mirror ddl data get ", from = "mirror/";
  const std::string list = run("ddl data get").out;
  for (const char* name :
       {"shakespeare", "tinystories", "fineweb-edu", "gpt2", "arc_easy", "arc_challenge", "hellaswag",
        "openbookqa", "piqa", "sciq", "social_iqa", "winogrande", "lambada_openai"})
    EXPECT_TRUE(contains(list, name)) << name;
  EXPECT_TRUE(contains(run("ddl data get shakespear").err, "did you mean shakespeare?"));
  EXPECT_TRUE(contains(run("ddl data get piqa --check").out, "licence see https://yonatanbisk.com/piqa"));

  // Of no known hash: whatever comes. A download that was cut continues.
  const std::string story =
      from + "huggingface.co/datasets/HuggingFaceFW/fineweb-edu/resolve/main/sample/10BT/";
  EXPECT_EQ(run("ddl data get fineweb-edu --check").code, 1) << "nothing is there";
  const Result absent = run(get + "fineweb-edu");
  EXPECT_EQ(absent.code, 2);
  EXPECT_TRUE(contains(absent.err, "not downloaded") &&
              contains(absent.err, "put it at corpora/fineweb-edu/"))
      << absent.err;
  folder_.write(story + "000_00000.parquet", "PAR1 and the rest");
  folder_.write("corpora/fineweb-edu/000_00000.parquet.part", "PAR1 and");
  const Result got = run(get + "fineweb-edu");
  EXPECT_EQ(got.code, 0) << got.err;
  EXPECT_TRUE(contains(got.out, "ODC-By 1.0") &&
              contains(got.out, "Next: ./ddl data prepare corpora/fineweb-edu"))
      << got.out;
  EXPECT_EQ(contents_of(folder_ / "corpora/fineweb-edu/000_00000.parquet"), "PAR1 and the rest");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "corpora/fineweb-edu/000_00000.parquet.part"));

  // Of known hash: another text is refused, and so is one that was put in place; neither is kept or changed.
  folder_.write(from + "raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
                std::string(1115394, 'x'));
  const Result wrong = run(get + "shakespeare --out s");
  EXPECT_TRUE(wrong.code == 2 && contains(wrong.err, "expected the SHA-256 86c4e6aa")) << wrong.err;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "s/input.txt"));
  folder_.write("s/input.txt", "mine");
  const Result mine = run(get + "shakespeare --out s");
  EXPECT_TRUE(mine.code == 2 && contains(mine.err, "expected 1115394 bytes, found 4")) << mine.err;
  EXPECT_EQ(contents_of(folder_ / "s/input.txt"), "mine");
  const Result checked = run("ddl data get shakespeare --out s --check --json");
  EXPECT_EQ(checked.code, 1);
  EXPECT_EQ(parse_json(checked.out)["files"][0]["status"], "differs");
}

TEST_F(Program, GetsPublishedDataOutOfArchives) {
  if (run("command -v curl && command -v unzip && command -v python3").code != 0)
    GTEST_SKIP() << "needs tools";
  run_well(
      "mkdir -p mirror/storage.googleapis.com/ai2-mosaic/public/winogrande winogrande_1.1 &&"
      " echo dev > winogrande_1.1/dev.jsonl && echo train > winogrande_1.1/train_xl.jsonl &&"
      " python3 -m zipfile -c mirror/storage.googleapis.com/ai2-mosaic/public/winogrande/winogrande_1.1.zip"
      " winogrande_1.1");
  const auto all = records("DDL_DATA_MIRROR=file://$PWD/mirror ddl data get winogrande --json");
  ASSERT_EQ(all.size(), 1u);
  for (const Json& file : all[0]["files"]) EXPECT_EQ(file["status"], "there");
  EXPECT_EQ(contents_of(folder_ / "tasks/winogrande/dev.jsonl"), "dev\n");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "tasks/winogrande.zip"));
}

TEST_F(Program, ReportsRuns) {
  write_bare_shards();
  train("bare");
  const Result made = run("ddl report run --out page.html --json page.json");
  EXPECT_EQ(made.code, 0) << made.err;
  EXPECT_TRUE(contains(made.out, "page.html: run: one run of ddl-cc, ")) << made.out;
  const std::string page = contents_of(folder_ / "page.html");
  EXPECT_EQ(page.find("<!doctype html>"), 0u);
  EXPECT_EQ(parse_json(contents_of(folder_ / "page.json"))["format"], "ddl-report");
  // A stored document makes the same page.
  run_well("ddl report page.json --out again.html");
  EXPECT_TRUE(contents_of(folder_ / "again.html") == page);
  run_well("ddl report . --out all.html");
  EXPECT_TRUE(contents_of(folder_ / "all.html") == page) << "the run below the folder";
  // What cannot be: nothing is written, and what was there stays.
  const auto refused = [&](const std::string& command, const std::string& words) {
    const Result result = run(command);
    EXPECT_TRUE(result.code == 2 && contains(result.err, words)) << command << "\n" << result.err;
  };
  refused("ddl report bare --out page.html", "bare: is no run and holds none");
  refused("ddl report absent --out page.html", "absent: there is no such folder");
  refused("ddl report bare/val.bin --out page.html", "bare/val.bin: expected a document");
  refused("ddl report run page.json --out page.html",
          "page.json: 'format' is \"ddl-report\", expected \"ddl-audit\"");
  refused("ddl report run --out absent/page.html", "absent/page.html");
  run_well("mkdir early && cp run/config.toml run/run.json early");
  refused("ddl report early --out page.html", "early: no records yet");
  EXPECT_EQ(contents_of(folder_ / "page.html"), page);
}

TEST_F(Program, EvaluatesAModelOfBareShards) {
  write_bare_shards();
  train("bare");
  ASSERT_FALSE(std::filesystem::exists(folder_ / "bare/tokenizer.json"));
  const auto shards = records("ddl eval run --text bare --json");
  ASSERT_EQ(shards.size(), 1u);
  EXPECT_TRUE(shards[0].contains("loss") && !shards[0].contains("bits_per_byte"));
  // Text needs a tokenizer; that shows before anything is computed.
  folder_.write("some.txt", "some text");
  const Result refused = run("ddl eval run --text bare --text some.txt");
  EXPECT_EQ(refused.code, 2);
  EXPECT_TRUE(contains(refused.err, "--tokenizer") && refused.out.empty()) << refused.err;
  const auto both = records("ddl eval run --text bare --text some.txt --tokenizer bytes --json");
  ASSERT_EQ(both.size(), 2u) << "a record a line";
  EXPECT_EQ(both[0]["loss"], shards[0]["loss"]);
  EXPECT_TRUE(both[1].contains("bits_per_byte"));

  const std::string row = R"({"goal":"g","sol1":"a","sol2":"b","label":0})";
  folder_.write("tasks/piqa/validation.jsonl", row + "\n");
  folder_.write("tasks/sciq/test.jsonl",
                R"({"question":"q","distractor1":"a","distractor2":"b","distractor3":")" +
                    std::string(49, 'x') + R"(","correct_answer":"d","support":""})");
  const auto scored =
      records("ddl eval run --tasks piqa --data tasks --tokenizer bytes --samples samples.jsonl --json");
  ASSERT_EQ(scored.size(), 1u);
  EXPECT_TRUE(scored[0]["results"].contains("piqa"));
  // The tokenizer is part of what was scored.
  folder_.write("train.txt", std::string(500, 'a'));
  run_well("ddl tokenizer train train.txt --vocab 258 --out other");
  const Result other =
      run("ddl eval run --tasks piqa --data tasks --tokenizer other --samples samples.jsonl");
  EXPECT_TRUE(other.code == 2 && contains(other.err, "another model")) << other.err;
  // A continuation that does not fit, of the last task: with --strict nothing is scored.
  const Result long_one =
      run("ddl eval run --tasks piqa,sciq --data tasks --tokenizer bytes --samples s.jsonl --strict");
  EXPECT_EQ(long_one.code, 2);
  EXPECT_TRUE(contains(long_one.err, "sciq: tasks/sciq/test.jsonl: row 1: a continuation of 50 tokens") &&
              contains(long_one.err, "context of 48"))
      << long_one.err;
  EXPECT_EQ(contents_of(folder_ / "s.jsonl"), "");
}

TEST_F(Program, ScoresTextAndTokens) {
  run_well("ddl data generate overwrite --docs 60 --out text.jsonl");
  run_well("ddl data prepare text.jsonl --tokenizer bytes --out set");
  train("set");
  folder_.write("some.txt", "a=3 b=7 a?3");
  const auto all = records("ddl score run --text some.txt --json --top 2 --gates");
  ASSERT_EQ(all.size(), 12u) << "eleven bytes and a summary";
  EXPECT_EQ(all[0]["event"], "token");
  EXPECT_EQ(all[0]["text"], "a");
  EXPECT_EQ(all[0]["best"].size(), 2u);
  EXPECT_EQ(all[0]["gates"]["gate"].size(), 2u) << "a number for every sublayer";
  double sum = 0;
  for (std::size_t i = 0; i + 1 < all.size(); ++i) sum += all[i]["log_probability"].get<double>();
  EXPECT_EQ(all.back()["event"], "score");
  EXPECT_DOUBLE_EQ(all.back()["log_likelihood"].get<double>(), sum);
  EXPECT_DOUBLE_EQ(all.back()["bits_per_byte"].get<double>(), -sum / std::log(2.0) / 11);

  folder_.write("ids.json", "[256, 97, 61,\n51]");  // end of text, then "a=3"
  const auto tokens = records("ddl score run --tokens ids.json --json");
  ASSERT_EQ(tokens.size(), 4u);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(tokens[i]["log_probability"], all[i]["log_probability"]);
  const Result screen = run("printf 'a=3' | ddl score run -");
  EXPECT_EQ(screen.code, 0) << screen.err;
  EXPECT_TRUE(contains(screen.out, "3 tokens: log-likelihood -")) << screen.out;

  const auto refused = [&](const std::string& arguments, const std::string& words) {
    const Result result = run("ddl score " + arguments);
    EXPECT_EQ(result.code, 2) << arguments;
    EXPECT_TRUE(contains(result.err, words)) << arguments << "\n" << result.err;
    EXPECT_EQ(result.out, "") << arguments;  // no head of a table that does not come
  };
  refused("run", "name what to score");
  refused("run --text some.txt --tokens ids.json", "name what to score");
  refused("run some.txt", "goes behind --text");
  refused("run --text nothing.txt", "nothing.txt");
  refused("run --text 'a=3 b=7'", "there is no file 'a=3 b=7'; a text itself goes to standard input");
  folder_.write("bad.txt", "1 2 x");
  refused("run --tokens bad.txt", "found 'x' after 2 of them");
  folder_.write("large.txt", "1 99999999999");
  refused("run --tokens large.txt", "too large");
  folder_.write("outside.txt", "1 400");
  refused("run --tokens outside.txt", "outside.txt: number 2 is 400, and the model's vocabulary has");
  folder_.write("empty.txt", "");
  refused("run --text empty.txt", "empty.txt: expected text, found none");
  refused("run --tokens empty.txt", "empty.txt: expected two token numbers or more");
  refused("run --text some.txt --precision f16", "--precision: f16");
  refused("some.txt --text some.txt", "some.txt: a file, expected a run or the folder of a model");
  folder_.write("model.gguf", "GGUF");
  refused("model.gguf --text some.txt", "`./ddl import` makes one of a GGUF file");

  const auto rows = records("ddl metrics run --json --columns loss,lr");
  EXPECT_FALSE(rows.empty());
  EXPECT_TRUE(rows[0].contains("loss") && rows[0].contains("lr") && rows[0].contains("step"));
  const Result csv = run("ddl metrics run --csv");
  EXPECT_EQ(csv.code, 0) << csv.err;
  EXPECT_TRUE(csv.out.starts_with("run,step,loss,")) << csv.out;
  EXPECT_EQ(run("ddl metrics run --columns nothing").code, 2);
}

TEST_F(Program, ExportsForTransformersAndLlamaCpp) {
  run_well("ddl data generate overwrite --docs 60 --out text.jsonl");
  run_well("ddl data prepare text.jsonl --tokenizer bytes --out set");
  train("set");
  const Result gguf = run("ddl export run --layout gguf --out run.gguf");
  EXPECT_EQ(gguf.code, 2);
  EXPECT_TRUE(contains(gguf.err, "llama.cpp cannot compute this model")) << gguf.err;
  run_well("ddl export run --layout transformers --out there");
  EXPECT_TRUE(contains(contents_of(folder_ / "there/modeling_deep_delta.py"), "class DeepDeltaForCausalLM"));
  run_well("ddl import there --out back");
  run_well("ddl export run --out own");
  EXPECT_EQ(contents_of(folder_ / "back/model.safetensors"), contents_of(folder_ / "own/model.safetensors"));
  EXPECT_EQ(contents_of(folder_ / "back/config.json"), contents_of(folder_ / "own/config.json"));
  EXPECT_EQ(run("ddl export run --type bf16 --out x").code, 2);
}

TEST_F(Program, AuditsARunACheckpointAndText) {
  run_well("ddl data generate overwrite --docs 60 --out text.jsonl");
  run_well("ddl data prepare text.jsonl --tokenizer bytes --out set");
  train("set");
  const auto all = records("ddl audit run --tokens 96 --json --out audits");
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0]["format"], "ddl-audit");
  EXPECT_EQ(all[0]["tokens"], 96);
  EXPECT_EQ(all[0]["gates"]["gate"]["classes"].size(), 5u) << "words, too: the model has a tokenizer";
  EXPECT_EQ(parse_json(contents_of(folder_ / "audits/audit.json")), all[0]);
  const auto of_checkpoint = records("ddl audit run/checkpoints/step-00000001 --tokens 96 --json");
  ASSERT_EQ(of_checkpoint.size(), 1u);
  EXPECT_EQ(of_checkpoint[0]["loss"], all[0]["loss"]);
  folder_.write("some.txt", std::string(200, 'a'));
  const Result screen = run("ddl audit run --text some.txt");
  EXPECT_EQ(screen.code, 0) << screen.err;
  EXPECT_TRUE(contains(screen.out, "192 tokens of some.txt (text)") && contains(screen.out, "0 attention"))
      << screen.out;

  const auto refused = [&](const std::string& arguments, const std::string& words) {
    const Result result = run("ddl audit " + arguments);
    EXPECT_EQ(result.code, 2) << arguments;
    EXPECT_TRUE(contains(result.err, words)) << arguments << "\n" << result.err;
  };
  refused("set", "expected a run (with checkpoints/) or a folder with config.json");
  refused("run --tokens 47", "expected 48 at least, one window");
  folder_.write("short.txt", "too short");
  refused("run --text short.txt", "short.txt: has 10 tokens; an audit needs 49 at least");
  folder_.write("train.txt", std::string(500, 'a'));
  run_well("ddl tokenizer train train.txt --vocab 258 --out other");
  run_well("ddl data prepare text.jsonl --tokenizer other --out other-set");
  refused("run --data other-set", "is not the data's");
  run_well("mv set elsewhere");
  refused("run", "is not there; name what to audit it on");
  write_bare_shards();
  refused("run --data bare --text some.txt", "--text");
  EXPECT_EQ(run("ddl audit run --data bare --tokens 96").code, 0);
}

TEST_F(Program, EvalReadsTheFieldAndLeavesOutTheRowsItIsTold) {
  write_bare_shards();
  train("bare");
  folder_.write("x.jsonl", "{\"body\":\"good\"}\n{\"body\":3}\n{\"body\":\"also good\"}\n");
  const std::string eval = "ddl eval run --tokenizer bytes --text x.jsonl --json";
  EXPECT_TRUE(contains(run(eval).err, "--field"));
  EXPECT_TRUE(contains(run(eval + " --field body").err, "--skip-bad"));
  const auto report = records(eval + " --field body --skip-bad 1");
  ASSERT_EQ(report.size(), 1u);
  EXPECT_EQ(report[0]["documents"], 2);
  EXPECT_EQ(report[0]["bad_rows_left_out"], 1);
  EXPECT_TRUE(contains(contents_of(folder_ / "err"), "left out: x.jsonl:2"));
}

TEST_F(Program, BenchmarksShowTheirTargets) {
  folder_.write("text.txt", std::string(2000, 'a') + " bb cc dd");
  write_bare_shards();
  const auto tokenizer = records("ddl bench tokenizer --text text.txt --json");
  ASSERT_EQ(tokenizer.size(), 2u);
  EXPECT_TRUE(tokenizer[0].contains("target_seconds"));
  EXPECT_EQ(tokenizer[1]["target_encode_mb_per_s_core"], 10);
  EXPECT_TRUE(contains(run("ddl bench tokenizer --text text.txt").out, "target 10 MB/s"));
  const std::string loader = "ddl bench loader --data bare --context 16 --rows 2 --consumed 1000";
  for (const Json& record : records(loader + " --json")) EXPECT_EQ(record["target_times_consumed"], 50);
  EXPECT_TRUE(contains(run(loader).out, "target: 50 times"));
}

}  // namespace
}  // namespace ddl
