// Where a run's configuration comes from, and what a resumed run may change.
#include "train/run_config.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "model/config_json.h"
#include "model/optimizer/adamw.h"
#include "model/residual/rules.h"
#include "small_run.h"
#include "train/identity.h"

namespace ddl {
namespace {

TEST(RunConfig, AppliesPresetThenFileThenSets) {
  const TestFolder folder;
  const std::string file = folder.write(
      "c.toml", "preset = \"small\"\nmodel.layers = 3\ntrain.lr = 0.5\n[data]\norder = \"random\"\n");
  const RunConfig c = load_run_config({"", "", file, {"train.lr=0.25", "model.residual=baseline"}});
  EXPECT_EQ(c.preset, "small");
  EXPECT_EQ(c.model.width, 768);
  EXPECT_EQ(c.model.layers, 3);
  EXPECT_EQ(c.train.lr, 0.25);
  EXPECT_EQ(c.train.data_order, WindowOrder::kRandom);
  EXPECT_EQ(c.model.vocab, 0);                                          // the data's
  EXPECT_EQ(load_run_config({"mini", "", file, {}}).model.width, 320);  // the command line's preset wins
  EXPECT_EQ(load_run_config({"", "", "", {}}).preset, "tiny");
  EXPECT_TRUE(contains(message_of<UserError>([&] {
                         load_run_config({"", "", "", {"train.stepz=1"}});
                       }),
                       "did you mean 'train.steps'"));
  EXPECT_TRUE(contains(message_of<UserError>([&] { load_run_config({"huge", "", "", {}}); }), "huge"));
}

TEST(RunConfig, StoredTextRestoresIt) {
  RunConfig c =
      load_run_config({"mini", "", "", {"train.lr=0.003", "model.vocab=77", "train.seed=12345678901"}});
  const RunConfig again = load_run_config({"", c.to_toml(), "", {}});
  EXPECT_EQ(again.to_toml(), c.to_toml());
  EXPECT_EQ(again.model.vocab, 77);
}

TEST(RunConfig, TakesTheVocabularyFromTheData) {
  const TestFolder folder;
  const Dataset data = Dataset::open(make_data(folder), kOneThread);
  RunConfig c = load_run_config({"", "", "", {}});
  resolve_with_data(c, data, kOneThread);
  EXPECT_EQ(c.model.vocab, 320);  // 257 rounded up to a multiple of 64
  c.model.vocab = 256;
  EXPECT_TRUE(contains(message_of<UserError>([&] { resolve_with_data(c, data, kOneThread); }), "256"));
  c.model.vocab = 257;
  resolve_with_data(c, data, kOneThread);
  c.train.context = 10000;
  EXPECT_TRUE(contains(message_of<UserError>([&] { resolve_with_data(c, data, kOneThread); }), "10000"));
}

// A stored configuration means the same numbers whatever the default will be.
TEST(RunConfig, NamesTheDeviationOfTheEmbedding) {
  const TestFolder folder;
  const Dataset data = Dataset::open(make_data(folder), kOneThread);
  RunConfig config = load_run_config({"", "", "", {"model.width=48", "model.heads=2"}});
  resolve_with_data(config, data, kOneThread);
  EXPECT_DOUBLE_EQ(config.model.embedding_std, 0.08);
  config = load_run_config({"", "", "", {"model.embedding_std=0.5"}});
  resolve_with_data(config, data, kOneThread);
  EXPECT_EQ(config.model.embedding_std, 0.5);
}

TEST(RunConfig, EveryConfigurationFileIsValid) {
  Index files = 0, paper = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(DDL_CONFIGS)) {
    if (entry.path().extension() != ".toml" || entry.path().parent_path().filename() == "studies") continue;
    ++files;
    RunConfig c = load_run_config({"", "", entry.path().string(), {"model.vocab=50304"}});
    c.model.check();
    if (entry.path().parent_path().filename() != "paper") continue;
    ++paper;
    // The paper's run, whatever the variant.
    EXPECT_EQ(c.train.steps, 100000) << entry.path();
    EXPECT_EQ(c.tokens_per_step(), 480 * 1024) << entry.path();
    EXPECT_EQ(c.train.warmup, 2000);
    EXPECT_EQ(c.train.lr, 1e-3);
    const AdamWOptions& adamw = c.train.optimizer.own.as<AdamWOptions>();
    EXPECT_EQ(adamw.beta1, 0.9);
    EXPECT_EQ(adamw.beta2, 0.95);
    EXPECT_EQ(c.train.optimizer.weight_decay, 0.1);
    EXPECT_EQ(c.train.optimizer.clip, 1.0);
    EXPECT_EQ(c.train.schedule, Schedule::kCosine);
    EXPECT_EQ(entry.path().stem().string(), c.preset + "-" + c.model.residual());
    EXPECT_TRUE(c.model.mup);
  }
  // Both sizes of the paper's rules and of their controls.
  Index rules = 0;
  for (const std::string& name : rule_names())
    rules += find_rule(name).paper || name.starts_with("wo-") ? 1 : 0;
  EXPECT_EQ(paper, 2 * rules);
  EXPECT_GT(files, paper);
}

TEST(RunConfig, ResumeMayChangeSomeThings) {
  const RunConfig before = load_run_config({"", "", "", {"model.vocab=64"}});
  RunConfig after = before;
  EXPECT_TRUE(allowed_changes(before, after).empty());
  after.train.steps = 9, after.train.lr = 0.5, after.train.eval_every = 3, after.train.data_folder = "/moved";
  const auto changes = allowed_changes(before, after);
  ASSERT_EQ(changes.size(), 4u);
  EXPECT_EQ(changes[0].key, "train.steps");
  EXPECT_EQ(changes[0].before, "2000");
  EXPECT_EQ(changes[0].after, "9");
  const auto refused = [&](auto&& change) {
    RunConfig c = before;
    change(c);
    return message_of<UserError>([&] { allowed_changes(before, c); });
  };
  EXPECT_TRUE(
      contains(refused([](RunConfig& c) { c.model.layers = 9; }), "model.layers: 4 in the run, 9 asked for"));
  EXPECT_TRUE(contains(refused([](RunConfig& c) { c.model.use_residual("baseline"); }), "model.residual"));
  EXPECT_TRUE(contains(refused([](RunConfig& c) { c.train.seed = 9; }), "train.seed"));
  EXPECT_TRUE(contains(refused([](RunConfig& c) { c.train.batch = 9; }), "train.batch"));
  EXPECT_TRUE(contains(refused([](RunConfig& c) { c.train.accumulate = 9; }), "train.accumulate"));
  EXPECT_TRUE(
      contains(refused([](RunConfig& c) { c.train.data_order = WindowOrder::kRandom; }), "data.order"));
}

TEST(ConfigJson, RestoresTheModelAndRefusesContradictions) {
  ModelConfig c = preset("mini");
  c.use_residual("wo-tc");
  for (const char* set : {"model.channels=3", "model.value=biased", "model.beta_init=0.75"}) c.set(set);
  const Json json = model_config_json(c);
  const ModelConfig again = parse_model_config(to_line(json), "config.json");
  EXPECT_EQ(to_line(model_config_json(again)), to_line(json));
  EXPECT_EQ(again.residual(), "wo-tc");
  EXPECT_EQ(again.rule<DeltaOptions>().beta_init, 0.75);
  EXPECT_EQ(json["hidden_size"], 320);
  const auto refused = [&](auto&& change) {
    Json changed = json;
    change(changed);
    return message_of<UserError>([&] { parse_model_config(to_line(changed), "config.json"); });
  };
  EXPECT_TRUE(contains(refused([](Json& j) { j["hidden_size"] = 64; }), "hidden_size is 64"));
  EXPECT_TRUE(contains(refused([](Json& j) { j["ddl"]["layers"] = "many"; }), "model.layers"));
  EXPECT_TRUE(contains(refused([](Json& j) { j["ddl"]["wings"] = 2; }), "wings"));
  EXPECT_TRUE(contains(refused([](Json& j) { j["ddl"]["heads"] = 7; }), "does not divide"));
  EXPECT_TRUE(contains(refused([](Json& j) { j["ddl"]["width"] = Json::array(); }), "width"));
  EXPECT_TRUE(contains(refused([](Json& j) { j["ddl"]["a b\"\n"] = 1; }), "config.json"));
  EXPECT_TRUE(contains(refused([](Json& j) { j.erase("ddl"); }), "ddl"));
  EXPECT_TRUE(contains(message_of<UserError>([&] { parse_model_config("{\"ddl\":", "config.json"); }),
                       "config.json"));
}

// A long value has a line of its own; in columns it would run into its neighbour. All else fits a terminal.
TEST(ConfigScreen, FitsATerminalAndGivesLongValuesALine) {
  RunConfig config;
  config.train.data_folder = "/a/folder/whose/name/is/longer/than/any/column/of/the/screen";
  std::istringstream lines(config_screen(config));
  bool found = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("longer") == std::string::npos) {
      EXPECT_LE(line.size(), 80u) << line;
      continue;
    }
    found = true;
    EXPECT_TRUE(line.ends_with("screen'")) << line;
  }
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace ddl
