// Runs with a choice of optimizer: its options, its state in checkpoints, and that a run cannot change it.
#include <gtest/gtest.h>

#include <set>

#include "core/error.h"
#include "example_optimizer.h"
#include "io/checkpoint_folder.h"
#include "io/safetensors.h"
#include "model/optimizer/muon.h"
#include "small_run.h"
#include "train/checkpoint_saver.h"
#include "train/identity.h"
#include "train/trainer.h"

namespace ddl {
namespace {

std::string checkpoint_of(const std::string& run, Index step) {
  return run + "/checkpoints/" + checkpoint_name(step);
}

std::string refusal(const std::vector<std::string>& sets, const std::string& file = "") {
  return message_of<UserError>([&] { load_run_config({"", "", file, sets}); });
}

TEST(OptimizerChoice, DecidesWhichOptionsThereAre) {
  const TestFolder folder;
  // Wherever the choice is made, and in whatever order.
  const std::string file = folder.write("c.toml", "[train]\nmomentum = 0.5\noptimizer = \"muon\"\n");
  const RunConfig c = load_run_config({"", "", file, {"train.beta2=0.75"}});
  EXPECT_EQ(c.train.optimizer.name, "muon");
  EXPECT_EQ(c.train.optimizer.own.as<MuonOptions>().momentum, 0.5);
  EXPECT_EQ(c.train.optimizer.own.as<MuonOptions>().rest.beta2, 0.75);
  EXPECT_EQ(load_run_config({"", "", "", {"train.momentum=0.5", "train.optimizer=muon"}}).to_toml(),
            load_run_config({"", "", file, {}}).to_toml());
  EXPECT_EQ(load_run_config({"", c.to_toml(), "", {}}).to_toml(), c.to_toml());

  const std::string whose = "train.momentum is an option of train.optimizer = muon";
  EXPECT_TRUE(contains(refusal({"train.momentum=0.5"}), whose)) << refusal({"train.momentum=0.5"});
  EXPECT_TRUE(contains(refusal({"train.momentum=0.5"}), "adamw has train.beta1, train.beta2, train.eps"));
  EXPECT_TRUE(contains(refusal({"train.optimizer=adamw"}, file), "c.toml:2: " + whose));
  EXPECT_TRUE(contains(refusal({"train.optimizer=muom"}), "nearest: muon"));
  EXPECT_TRUE(contains(refusal({"train.optimizer=muon", "train.momentum=2"}), "train.momentum is 2"));
}

// Names of what a checkpoint holds of an optimizer.
std::set<std::string> stored_state(const std::string& checkpoint) {
  std::set<std::string> names;
  const SafetensorsFile file(checkpoint + "/optimizer.safetensors");
  for (const TensorInfo& tensor : file.tensors()) names.insert(tensor.name);
  return names;
}

TEST(OptimizerChoice, CheckpointsHoldTheStateByName) {
  const TestFolder folder;
  const std::string data = make_data(folder), adamw = folder / "adamw", muon = folder / "muon";
  run(small_request(data, adamw, {"train.steps=1", "model.layers=1"}));
  run(small_request(data, muon, {"train.steps=1", "model.layers=1", "train.optimizer=muon"}));
  std::set<std::string> of_adamw, of_muon;
  const SafetensorsFile model(checkpoint_of(muon, 1) + "/model.safetensors");
  Index matrices = 0, floats = 0;
  for (const TensorInfo& t : model.tensors()) {
    for (const char* prefix : {"exp_avg.", "exp_avg_sq."}) of_adamw.insert(prefix + t.name);
    const bool matrix = contains(t.name, ".c_") || contains(t.name, "v_proj.weight");
    if (matrix) of_muon.insert("momentum." + t.name);
    if (!matrix)
      for (const char* prefix : {"exp_avg.", "exp_avg_sq."}) of_muon.insert(prefix + t.name);
    matrices += matrix, floats += matrix ? t.count : 2 * t.count;
  }
  EXPECT_EQ(stored_state(checkpoint_of(adamw, 1)), of_adamw);
  EXPECT_EQ(stored_state(checkpoint_of(muon, 1)), of_muon);
  EXPECT_EQ(matrices, 7 + 2);  // of attention and the MLP, and the two value branches
  Index stored = 0;
  const SafetensorsFile state(checkpoint_of(muon, 1) + "/optimizer.safetensors");
  for (const TensorInfo& t : state.tensors()) stored += t.count;
  EXPECT_EQ(stored, floats);
}

TEST(OptimizerChoice, ARunCannotChangeIt) {
  const TestFolder folder;
  const std::string data = make_data(folder), adamw = folder / "adamw", muon = folder / "muon";
  run(small_request(data, adamw, {"train.steps=1"}));
  run(small_request(data, muon, {"train.steps=1", "train.optimizer=muon", "train.momentum=0.9"}));
  const auto message = [&](const std::string& out, const std::string& optimizer) {
    return message_of<UserError>([&] {
      run(resume_request(out, {"train.steps=2", "train.optimizer=" + optimizer}));
    });
  };
  const std::string to_muon = message(adamw, "muon"), to_adamw = message(muon, "adamw");
  EXPECT_TRUE(contains(to_muon, "train.optimizer: 'adamw' in the run, 'muon' asked for")) << to_muon;
  // The stored configuration has options that AdamW has not; what is wrong is the choice.
  EXPECT_TRUE(contains(to_adamw, "train.optimizer: 'muon' in the run, 'adamw' asked for")) << to_adamw;
  EXPECT_EQ(run(resume_request(muon, {"train.steps=2", "train.momentum=0.8"})).step, 2);
  EXPECT_EQ(records(muon, "resume").back()["changed"][1]["key"], "train.momentum");
}

// The level below a run: a checkpoint read into a trainer with another optimizer, or with the wrong tensors.
TEST(OptimizerChoice, ACheckpointOfAnotherIsRefused) {
  const TestFolder folder;
  const std::string path = make_data(folder), out = folder / "run";
  run(small_request(path, out, {"train.steps=1"}));
  const Dataset data = Dataset::open(path, kOneThread);
  RunConfig c = load_run_config({"", "", "", small_sets({"train.optimizer=muon"})});
  resolve_with_data(c, data, kOneThread);
  Trainer muon(c, data, kOneThread);
  const std::string checkpoint = checkpoint_of(out, 1);
  const auto message = [&](Trainer& trainer) {
    return message_of<UserError>([&] { load_checkpoint(checkpoint, trainer); });
  };
  EXPECT_EQ(message(muon), checkpoint +
                               ": a checkpoint of train.optimizer = adamw, expected muon; its state "
                               "means nothing to another");

  RunConfig same = load_run_config({"", "", "", small_sets()});
  resolve_with_data(same, data, kOneThread);
  Trainer adamw(same, data, kOneThread);
  load_checkpoint(checkpoint, adamw);
  const std::string file = checkpoint + "/optimizer.safetensors";
  const float value = 0;
  write_safetensors(file, std::vector<TensorToWrite>{{"exp_avg.x", "F32", {1}, &value}}, {});
  EXPECT_TRUE(contains(message(adamw), file + ": tensor 'exp_avg.transformer.wte.weight' is missing"))
      << message(adamw);
  std::vector<TensorToWrite> tensors;
  std::vector<float> zeros(adamw.model().weights().table().floats());
  for (const std::string prefix : {"exp_avg.", "exp_avg_sq.", "momentum."})
    for (const Param& p : adamw.model().weights().table().list())
      tensors.push_back({prefix + p.name, "F32", p.shape, zeros.data()});
  write_safetensors(file, tensors, {});
  EXPECT_TRUE(contains(message(adamw), fmt::format("{}: holds {} tensors, train.optimizer = adamw for this "
                                                   "model has {}",
                                                   file, tensors.size(), tensors.size() / 3 * 2)))
      << message(adamw);
}

// Runs from before there was a choice do not name it; they were AdamW's.
TEST(OptimizerChoice, RunsThatDoNotNameItGoOn) {
  const TestFolder folder;
  const std::string data = make_data(folder), whole = folder / "whole", old = folder / "old";
  run(small_request(data, whole, {"train.steps=4"}));
  run(small_request(data, old, {"train.steps=4", "checkpoint.every_steps=2", "checkpoint.keep_last=9"}));
  remove_checkpoint(checkpoint_of(old, 4));
  std::string config = contents_of(old + "/config.toml");
  const std::size_t line = config.find("train.optimizer");
  ASSERT_NE(line, std::string::npos);
  config.erase(line, config.find('\n', line) + 1 - line);
  write_file_atomic(old + "/config.toml", config);
  const std::string checkpoint = checkpoint_of(old, 2);
  Json trainer = read_trainer_json(checkpoint);
  ASSERT_EQ(trainer["config"]["train"].erase("optimizer"), 1u);
  {
    CheckpointWriter writer(old + "/checkpoints", 2);
    for (const auto& entry : std::filesystem::directory_iterator(checkpoint)) {
      const std::string name = entry.path().filename();
      if (name == "trainer.json")
        writer.add_text(name, to_text(trainer));
      else if (name != "manifest.json")
        writer.add_text(name, contents_of(entry.path()));
    }
    writer.commit();
  }
  EXPECT_EQ(run(resume_request(old)).step, 4);
  EXPECT_EQ(records(old, "resume").size(), 1u);
  EXPECT_EQ(trajectory(old), trajectory(whole));
}

// One that this program does not know: registered, it has its options, its checkpoints and its resume.
TEST(OptimizerChoice, ARegisteredOneNeedsNothingElse) {
  register_optimizer(sgd_entry());
  const TestFolder folder;
  const std::string data = make_data(folder), whole = folder / "whole", parts = folder / "parts";
  const std::vector<std::string> sets = {
      "train.steps=6",        "train.optimizer=sgd",    "train.momentum=0.8",       "train.lr=0.1",
      "model.precision=bf16", "checkpoint.keep_last=9", "checkpoint.every_steps=3", "checkpoint.keep_best=0"};
  run(small_request(data, whole, sets));
  run(small_request(data, parts, sets));
  remove_checkpoint(checkpoint_of(parts, 6));
  run(resume_request(parts));
  EXPECT_EQ(trajectory(whole), trajectory(parts));
  for (const char* file : {"model.safetensors", "optimizer.safetensors"})
    EXPECT_EQ(contents_of(checkpoint_of(whole, 6) + "/" + file),
              contents_of(checkpoint_of(parts, 6) + "/" + file));
  const auto steps = records(whole, "step");
  EXPECT_LT(steps.back()["loss"].get<double>(), steps.front()["loss"].get<double>());
  EXPECT_TRUE(
      contains(refusal({"train.optimizer=sgd", "train.beta1=0.5"}),
               "train.beta1 is an option of train.optimizer = adamw or muon; sgd has train.momentum"));
}

}  // namespace
}  // namespace ddl
