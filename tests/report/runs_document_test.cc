#include "report/runs_document.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "core/error.h"
#include "report/page.h"
#include "report/run_groups.h"
#include "test_folder.h"

namespace ddl {
namespace {

// Folders as `ddl train` writes them, without training.
class RunsDocument : public ::testing::Test {
 protected:
  struct Made {
    int steps = 40, recorded = 40;
    double offset = 0;
    bool done = true;
  };
  std::string make(const std::string& name, const std::vector<std::string>& sets, const Made& made) {
    std::vector<std::string> all = {"model.vocab=512", "data.folder=/data/stories",
                                    fmt::format("train.steps={}", made.steps)};
    all.insert(all.end(), sets.begin(), sets.end());
    folder_.write(name + "/config.toml", load_run_config({"", "", "", all}).to_toml());
    folder_.write(
        name + "/run.json",
        R"({"format":"ddl-run","version":1,"data":{"folder":"/data/stories","form":"ddl","fingerprint":"abcdef0123456789ff","train_tokens":1000,"val_tokens":100},"tokenizer_sha256":null})");
    std::string lines =
        R"({"v":1,"event":"start","step":0,"time":"2026-11-17T10:00:00Z","parameters":12345,"threads":1,"isa":"avx2","precision":"f32"})"
        "\n";
    for (int step = 1; step <= made.recorded; ++step) {
      lines += fmt::format(
          R"({{"v":1,"event":"step","step":{0},"loss":{1},"grad_norm":{2},"lr":0.01,"tokens":{3},"flops":{4},"elapsed_s":{5}}})"
          "\n",
          step, 5.0 - 0.05 * step + made.offset, step == 7 ? "null" : "1.5", 100 * step, 5000.0 * step,
          0.25 * step);
      if (step % 10 == 0)
        lines += fmt::format(
            R"({{"v":1,"event":"validation","step":{},"loss":{},"tokens":{},"flops":{},"elapsed_s":{}}})"
            "\n",
            step, 4.0 - 0.05 * step + made.offset, 100 * step, 5000.0 * step, 0.25 * step + 0.1);
      if (step % 20 == 0)
        lines += fmt::format(
            R"({{"v":1,"event":"gates","step":{},"sublayers":[{{"sublayer":0,"kind":"attention","series":{{"gate":{{"mean":{}}}}},"discrepancy_before":0.5,"discrepancy_after":0.25}},{{"sublayer":1,"kind":"mlp","series":{{"gate":{{"mean":1.5}}}},"discrepancy_before":0.75,"discrepancy_after":0.1}}]}})"
            "\n",
            step, 0.01 * step + made.offset);
    }
    if (made.done)
      lines += fmt::format(R"({{"v":1,"event":"done","step":{},"tokens":1}})"
                           "\n",
                           made.recorded);
    return folder_.write(name + "/metrics.jsonl", lines), folder_ / name;
  }
  Json document(const std::vector<std::string>& paths) {
    return runs_document(read_all_runs(find_runs(paths))).json();
  }

  static Json section(const Json& document, const std::string& id) {
    for (const Json& section : document["sections"])
      if (section["id"] == id) return section["blocks"];
    return Json::array();
  }
  static Json titled(const Json& blocks, const std::string& title) {
    for (const Json& block : blocks)
      if (block.contains("title") && block["title"] == title) return block;
    ADD_FAILURE() << "no chart '" << title << "' in " << to_line(blocks);
    return {};
  }
  TestFolder folder_;
};

TEST_F(RunsDocument, OneRun) {
  const Json d = document({make("only", {"model.residual=ddl-cc"}, {})});
  EXPECT_EQ(d["title"], "only: one run of ddl-cc");
  EXPECT_EQ(d["subtitle"], "1 run, up to 4.0 k tokens of stories. Begun 2026-11-17.");
  const Json validation = titled(section(d, "curves"), "Validation loss");
  ASSERT_EQ(validation["series"].size(), 1u);
  const Json& series = validation["series"][0];
  EXPECT_EQ(series["name"], "ddl-cc");
  EXPECT_EQ(
      to_line(series["x"]),
      R"({"tokens":[1000.0,2000.0,3000.0,4000.0],"flops":[50000.0,100000.0,150000.0,200000.0],"seconds":[2.6,5.1,7.6,10.1]})");
  EXPECT_EQ(to_line(series["y"]), "[3.5,3.0,2.5,2.0]");
  EXPECT_FALSE(series.contains("lo")) << "one seed has no band";
  const Json norm = titled(section(d, "curves"), "Gradient norm before clipping");
  EXPECT_TRUE(norm["series"][0]["y"][6].is_null()) << "a norm that was not finite";
  EXPECT_EQ(norm["y"]["scale"], "log");
  const Json gates = titled(section(d, "gates"), "Mean gate of each sublayer, at the end");
  EXPECT_EQ(to_line(gates["series"][0]["y"]), "[0.4,1.5]");
  const Json map = titled(section(d, "gates"), "Mean gate while training: ddl-cc");
  EXPECT_EQ(to_line(map["rows"]), R"(["0 attention","1 mlp"])");
  EXPECT_EQ(to_line(map["columns"]), R"(["20","40"])");
  EXPECT_EQ(to_line(map["values"]), "[[0.2,0.4],[1.5,1.5]]");
  EXPECT_TRUE(section(d, "pairs").empty() && section(d, "rates").empty());
  EXPECT_EQ(section(d, "summary")[0]["text"],
            "The validation loss of ddl-cc after 4.0 k tokens is 2.0000 nats per token.");
}

TEST_F(RunsDocument, SeedsMakeABandAndPairsADifference) {
  make("runs/b1", {"model.residual=baseline", "train.seed=1"}, {.offset = 0.25});
  make("runs/b2", {"model.residual=baseline", "train.seed=2"}, {.offset = 0.75});
  make("runs/d1", {"model.residual=ddl-cc", "train.seed=1", "log.every=3", "checkpoint.keep_last=7"},
       {.offset = 0});
  make("runs/d2", {"model.residual=ddl-cc", "train.seed=2"}, {.offset = 1});
  make("runs/d3", {"model.residual=ddl-cc", "train.seed=3"}, {.recorded = 30, .offset = 0.5, .done = false});
  const Json d = document({folder_ / "runs"});
  EXPECT_EQ(d["title"], "baseline and ddl-cc");
  const Json validation = titled(section(d, "curves"), "Validation loss");
  ASSERT_EQ(validation["series"].size(), 2u);
  EXPECT_EQ(to_line(validation["series"][0]["y"]), "[4.0,3.5,3.0,2.5]");
  EXPECT_EQ(to_line(validation["series"][0]["lo"]), "[3.75,3.25,2.75,2.25]");
  EXPECT_EQ(to_line(validation["series"][0]["hi"]), "[4.25,3.75,3.25,2.75]");
  EXPECT_EQ(to_line(validation["series"][1]["y"]), "[4.0,3.5,3.0]") << "where all three seeds have been";
  const Json forest = titled(section(d, "pairs"), "Validation loss, difference from baseline");
  ASSERT_EQ(forest["rows"].size(), 1u);
  EXPECT_EQ(to_line(forest["rows"][0]),
            R"({"name":"ddl-cc","mean":0.0,"lo":null,"hi":null,"points":[-0.25,0.25]})");
  // One run is behind: all are compared where it is.
  EXPECT_EQ(section(d, "summary")[0]["text"],
            "The lowest validation loss after 3.0 k tokens is that of baseline: 3.0000 nats per token, the "
            "mean of 2 seeds.");
  const Json models = section(d, "summary")[2];
  EXPECT_EQ(models["caption"], "Validation loss after 3.0 k tokens, over seeds");
  EXPECT_EQ(to_line(models["rows"]), R"([["baseline",2,3.0,2.75,3.25],["ddl-cc",3,3.0,2.5,3.5]])");
  const Json notes = section(d, "summary")[1];
  EXPECT_EQ(notes["tone"], "warning");
  EXPECT_EQ(to_line(notes["items"]), R"(["d3: unfinished: step 30 of 40"])");
  // In the table only what tells the models apart; the seed and the intervals do not.
  const Json table = section(d, "configuration")[0];
  std::string keys;
  for (const Json& row : table["rows"]) keys += row[0].get<std::string>() + " ";
  EXPECT_EQ(keys.find("model.residual "), 0u) << keys;
  for (const char* key : {"train.seed", "log.every", "checkpoint.keep_last"})
    EXPECT_FALSE(contains(keys, key)) << keys;
}

TEST_F(RunsDocument, RatesMakeALine) {
  for (const char* rate : {"0.002", "0.001", "0.004"})
    make(std::string("lr/") + rate, {"model.residual=ddl-cc", std::string("train.lr=") + rate},
         {.offset = std::stod(rate) * 100});
  const Json d = document({folder_ / "lr"});
  const Json block = titled(section(d, "rates"), "Validation loss after 4.0 k tokens, by peak learning rate");
  ASSERT_EQ(block["series"].size(), 1u);
  EXPECT_EQ(block["series"][0]["name"], "ddl-cc");
  EXPECT_EQ(to_line(block["series"][0]["x"]["lr"]), "[0.001,0.002,0.004]");
  EXPECT_EQ(block["series"][0]["y"].size(), 3u);
  EXPECT_LT(block["series"][0]["y"][0], block["series"][0]["y"][2]);
  const Json validation = titled(section(d, "curves"), "Validation loss");
  EXPECT_EQ(validation["series"][0]["name"], "ddl-cc, lr 0.001") << "found by name";
}

TEST_F(RunsDocument, LongCurvesAreThinnedAndSaySo) {
  const Json d = document({make("long", {}, {.steps = 1200, .recorded = 1200})});
  const Json training = titled(section(d, "curves"), "Training loss");
  EXPECT_EQ(training["series"][0]["y"].size(), 400u);
  EXPECT_EQ(training["series"][0]["lo"].size(), 400u);
  EXPECT_TRUE(contains(training["note"].get<std::string>(), "the mean of up to 3 recorded steps"))
      << training["note"];
}

TEST_F(RunsDocument, ADamagedRunIsReportedAndTheRestShown) {
  const std::string whole = make("whole", {}, {}), broken = make("broken", {}, {}),
                    cut = make("cut", {}, {.done = false}), empty = make("empty", {}, {});
  folder_.write("broken/config.toml", "model.layers = \"many\"");
  folder_.write("broken/run.json", "{");
  const std::string metrics = contents_of(broken + "/metrics.jsonl");
  folder_.write("broken/metrics.jsonl", "\xff\xfe garbage\n" + metrics.substr(0, metrics.size() / 2) +
                                            "\n[1]\n{\"event\":\"step\",\"step\":1e300}\n");
  folder_.write("cut/metrics.jsonl", contents_of(cut + "/metrics.jsonl") + R"({"v":1,"event":"st)");
  folder_.write("empty/metrics.jsonl", "");
  const Json d = document({whole, broken, cut, empty});
  const std::string notes = to_line(section(d, "summary")[1]["items"]);
  EXPECT_TRUE(contains(notes, "broken: config.toml cannot be used: the run's config.toml")) << notes;
  EXPECT_TRUE(contains(notes, "broken: run.json cannot be used")) << notes;
  EXPECT_TRUE(contains(notes, "lines of metrics.jsonl cannot be read and are left out; the first is line 1"))
      << notes;
  EXPECT_TRUE(contains(notes, "cut: the last line of metrics.jsonl is incomplete")) << notes;
  EXPECT_TRUE(contains(notes, "empty: there are no records yet")) << notes;
  EXPECT_FALSE(contains(notes, "whole:")) << notes;
  EXPECT_EQ(titled(section(d, "curves"), "Training loss")["series"].size(), 2u)
      << "the broken one, and the others together";
  report_page(d);
}

TEST_F(RunsDocument, RefusesWhatIsNoRun) {
  const auto refusal = [&](const std::string& path) {
    return message_of<UserError>([&] { document({path}); });
  };
  EXPECT_TRUE(contains(refusal(folder_ / "absent"), "absent: there is no such folder"));
  folder_.write("other/file.txt", "x");
  EXPECT_TRUE(contains(refusal(folder_ / "other"), "other: is no run and holds none"));
  EXPECT_TRUE(contains(refusal(folder_ / "other/file.txt"), "expected a run's folder, found a file"));
  make("early", {}, {.recorded = 0, .done = false});
  EXPECT_TRUE(contains(refusal(folder_ / "early"), "early: no records yet"));
}

TEST_F(RunsDocument, RunsHaveShortNamesOfTheirOwn) {
  make("a/run", {}, {});
  make("b/run", {}, {});
  const auto runs =
      read_all_runs(find_runs({folder_ / "a", folder_ / "b", folder_ / "a/run", folder_.path() + "/a/run/"}));
  ASSERT_EQ(runs.size(), 2u) << "a run that is named twice is there once";
  EXPECT_EQ(runs[0].name, "a/run");
  EXPECT_EQ(runs[1].name, "b/run");
}

// Names hold commas where settings are part of them.
TEST_F(RunsDocument, ATitleIsReadable) {
  for (const char* rate : {"0.001", "0.002"})
    for (const char* rule : {"baseline", "ddl-cc"})
      make(fmt::format("{}-{}", rule, rate),
           {std::string("model.residual=") + rule, std::string("train.lr=") + rate}, {});
  make("again", {"model.residual=baseline", "train.lr=0.001", "train.seed=2"}, {});
  make("plain/a", {"model.residual=baseline"}, {});
  make("plain/b", {"model.residual=ddl-cc"}, {});
  make("plain/c", {"model.residual=wo-cc"}, {});
  EXPECT_EQ(document({folder_ / "plain"})["title"], "baseline, ddl-cc and wo-cc");
  std::filesystem::remove_all(folder_ / "plain");
  EXPECT_EQ(document({folder_.path()})["title"], "4 models, 5 runs");
  EXPECT_EQ(
      document({folder_ / "baseline-0.001", folder_ / "baseline-0.002", folder_ / "ddl-cc-0.001"})["title"],
      "baseline, lr 0.001; baseline, lr 0.002 and ddl-cc, lr 0.001");
}

// The command restores every option but the data's folder, which it names.
TEST_F(RunsDocument, TheCommandRepeatsTheRun) {
  make("it's",
       {"model.residual=wo-cc", "train.optimizer=muon", "train.lr=0.003",
        R"(log.sample_prompt="\"two\" words, $HOME")", "train.seed=9"},
       {});
  const RunRecords run = read_all_runs({folder_ / "it's"})[0];
  const std::string command = train_command(run);
  EXPECT_EQ(
      command.find("DDL_THREADS=1 ./ddl train --preset tiny --data /data/stories --out 'runs/it'\\''s'"), 0u)
      << command;
  // As a shell reads it.
  folder_.write("script", "ddl() { shift; printf '%s\\n' \"$@\"; }\n" +
                              std::string(command).replace(command.find("./ddl"), 5, "ddl") + "\n");
  ASSERT_EQ(std::system(("sh " + (folder_ / "script") + " > " + (folder_ / "words")).c_str()), 0);
  std::istringstream words(contents_of(folder_ / "words"));
  std::vector<std::string> sets;
  std::string preset;
  for (std::string word; std::getline(words, word);) {
    if (word == "--set") sets.emplace_back(), std::getline(words, sets.back());
    if (word == "--preset") std::getline(words, preset);
  }
  RunConfig again = load_run_config({preset, "", "", sets});
  again.train.data_folder = run.config->train.data_folder;
  EXPECT_EQ(again.to_toml(), run.config->to_toml());
}

// The demo's rate follows the clock: its runs say so, and keep saying so when `ddl train` has continued them.
TEST_F(RunsDocument, NoCommandIsShownForARunThatNoneRepeats) {
  const std::string path = make("runs/demo", {}, {});
  const std::string repeatable = make("runs/plain", {"train.seed=9"}, {});
  std::string metrics = contents_of(path + "/metrics.jsonl");
  metrics.insert(metrics.find('}'), R"(,"rate_by_clock":true)");
  folder_.write("runs/demo/metrics.jsonl", metrics + R"({"v":1,"event":"resume","step":40})"
                                                     "\n");
  EXPECT_EQ(train_command(read_run_records(path)), "");
  const std::string alone = to_line(section(document({path}), "repeat"));
  EXPECT_TRUE(contains(alone, "by the clock, so ddl train cannot repeat")) << alone;
  EXPECT_FALSE(contains(alone, "same bits")) << alone;
  const std::string both = to_line(section(document({path, repeatable}), "repeat"));
  EXPECT_TRUE(contains(both, "by the clock") && contains(both, "--out runs/plain")) << both;
  EXPECT_FALSE(contains(both, "--out runs/demo")) << both;
}

TEST_F(RunsDocument, TheSameFilesGiveTheSamePage) {
  const std::string path = make("run", {}, {});
  const std::string page = report_page(document({path}));
  EXPECT_EQ(report_page(document({path})), page);
  EXPECT_EQ(report_page(document({folder_.path()})), page) << "found below a folder";
  EXPECT_EQ(report_page(document({folder_.path() + "/./run/"})), page) << "however its name is written";
}

}  // namespace
}  // namespace ddl
