// Whole runs: resume repeats the uninterrupted run bit for bit, and the run guards itself.
#include "train/run.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <limits>

#include "core/error.h"
#include "data/bpe_train.h"
#include "io/checkpoint_folder.h"
#include "io/safetensors.h"
#include "model/config_json.h"
#include "model/optimizer/optimizer.h"
#include "model/plan.h"
#include "model/stored_model.h"
#include "small_run.h"
#include "train/checkpoint_saver.h"
#include "train/run_folder.h"
#include "train/trainer.h"

namespace ddl {
namespace {

namespace fs = std::filesystem;

TEST(Run, LeavesACompleteFolder) {
  const TestFolder folder;
  const std::string data = make_data(folder), out = folder / "run";
  const RunOutcome outcome = run(small_request(data, out, {"train.steps=4", "train.accumulate=2"}));
  EXPECT_EQ(outcome.step, 4);
  EXPECT_EQ(outcome.signal, 0);

  const auto steps = records(out, "step");
  ASSERT_EQ(steps.size(), 4u);
  const Json& last = steps.back();
  EXPECT_EQ(last["tokens"], 4 * 2 * 4 * 48);
  const ModelConfig config =
      parse_model_config(contents_of(out + "/checkpoints/step-00000004/config.json"), "c");
  const ModelPlan plan = plan_model(config, {4, 48});
  EXPECT_DOUBLE_EQ(last["flops"].get<double>(),
                   (plan.forward.total() + plan.backward.total()) * 4 * 2 * 4 * 48);
  for (const char* key : {"loss", "grad_norm", "lr", "elapsed_s", "tokens_per_s", "epoch"})
    EXPECT_TRUE(last[key].is_number()) << key;
  EXPECT_NEAR(steps[0]["loss"].get<double>(), std::log(320.0), 0.3);  // knows nothing yet

  const auto validations = records(out, "validation");
  ASSERT_EQ(validations.size(), 2u);
  for (const char* key : {"perplexity", "answer_accuracy", "exact_answers"})
    EXPECT_TRUE(validations[0][key].is_number()) << key;
  EXPECT_DOUBLE_EQ(validations[0]["perplexity"].get<double>(),
                   std::exp(validations[0]["loss"].get<double>()));

  const auto gates = records(out, "gates");
  ASSERT_EQ(gates.size(), 2u);
  ASSERT_EQ(gates[0]["sublayers"].size(), 4u);
  for (const Json& s : gates[0]["sublayers"]) {
    const Json& gate = s["series"]["gate"];
    EXPECT_GT(gate["mean"].get<double>(), 0);
    EXPECT_LT(gate["mean"].get<double>(), 2);
    double total = 0;
    for (const Json& share : gate["histogram"]) total += share.get<double>();
    EXPECT_EQ(gate["histogram"].size(), 20u);
    EXPECT_NEAR(total, 1, 1e-12);
    EXPECT_LT(s["discrepancy_after"].get<double>(), s["discrepancy_before"].get<double>());
  }
  const std::string checkpoint = out + "/checkpoints/step-00000004";
  verify_checkpoint(checkpoint);
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "config.json", "tokenizer.json",
                           "trainer.json", "manifest.json", "generation_config.json"})
    EXPECT_TRUE(fs::exists(checkpoint + "/" + name)) << name;
  EXPECT_TRUE(SafetensorsFile(checkpoint + "/model.safetensors").find("transformer.wte.weight"));
  EXPECT_EQ(records(out, "done").size(), 1u);
  EXPECT_EQ(records(out, "checkpoint").size(), 2u);  // the first validation's, which is the best so far
}

// 6 steps are 3 and 3, in every bit, for each kind of state a run has.
TEST(Run, ResumeRepeatsTheUninterruptedRun) {
  const TestFolder folder;
  const std::string data = make_data(folder);
  std::vector<std::vector<std::string>> kinds = {
      {"model.precision=f32"},
      {"model.precision=bf16", "train.ema=0.9", "model.residual=ddl-tc"},
      {"train.accumulate=2", "data.order=random", "model.residual=baseline", "checkpoint.background=false"}};
  for (const std::string& optimizer : optimizer_names())
    kinds.push_back({"train.optimizer=" + optimizer, "train.ema=0.9", "model.precision=bf16"});
  int kind = 0;
  for (std::vector<std::string> sets : kinds) {
    const std::string whole = folder / fmt::format("whole{}", kind),
                      parts = folder / fmt::format("parts{}", kind);
    ++kind;
    sets.push_back("train.steps=6");
    run(small_request(data, whole, sets));
    // The schedule must know the whole length from the start, so the first part is stopped, not shortened.
    RunRequest first = small_request(data, parts, sets);
    first.sets.push_back("checkpoint.every_steps=3");
    first.sets.push_back("checkpoint.keep_last=9");
    first.sets.push_back("checkpoint.keep_best=0");
    run(first);
    remove_checkpoint(parts + "/checkpoints/step-00000006");
    run(resume_request(parts));
    EXPECT_EQ(trajectory(whole), trajectory(parts));
    EXPECT_EQ(trajectory(whole).size(), sets[0] == "train.accumulate=2" ? 9u : 12u);
    for (const char* file : {"model.safetensors", "optimizer.safetensors"})
      EXPECT_EQ(contents_of(whole + "/checkpoints/step-00000006/" + file),
                contents_of(parts + "/checkpoints/step-00000006/" + file));
    EXPECT_EQ(records(parts, "resume").size(), 1u);
  }
}

// A longer run that branches off a shorter one is the run it would have been from step 0.
TEST(Run, ABranchRepeatsTheWholeRun) {
  const TestFolder folder;
  const std::string data = make_data(folder);
  const std::vector<std::string> shared = {"train.schedule=cooldown", "train.cooldown=0.5", "train.ema=0.9",
                                           "checkpoint.keep_last=1", "checkpoint.keep_best=0"};
  const auto with_steps = [&](const char* steps) {
    std::vector<std::string> sets = shared;
    sets.push_back(steps);
    return sets;
  };
  run(small_request(data, folder / "whole", with_steps("train.steps=10")));
  run(small_request(data, folder / "short", with_steps("train.steps=6")));
  RunRequest branch = small_request(data, folder / "branch", with_steps("train.steps=10"));
  branch.branch = folder / "short";
  run(branch);
  EXPECT_EQ(records(folder / "branch", "start").back()["step"], 3);  // where the short one began to cool down
  const auto end = [&](const char* name, const char* file) {
    return contents_of(folder / (std::string(name) + "/checkpoints/step-00000010/" + file));
  };
  for (const char* file : {"model.safetensors", "optimizer.safetensors", "average.safetensors"})
    EXPECT_EQ(end("whole", file), end("branch", file)) << file;
  const auto losses = [&](const char* name) {
    std::vector<double> all;
    for (const Json& record : records(folder / name, "step")) all.push_back(record["loss"]);
    return all;
  };
  EXPECT_EQ(losses("whole"), losses("branch"));
}

TEST(Run, ABranchNeedsStepsToShare) {
  const TestFolder folder;
  const std::string data = make_data(folder);
  run(small_request(data, folder / "cosine", {"train.steps=4"}));
  RunRequest branch = small_request(data, folder / "branch", {"train.steps=8"});
  branch.branch = folder / "cosine";
  EXPECT_THROW(run(branch), UserError);
  branch.branch = folder / "nothing";
  EXPECT_THROW(run(branch), UserError);
  branch.branch = folder / "cosine";
  branch.from = folder / "cosine";
  EXPECT_THROW(run(branch), UserError);
}

// What validation measured is what generate, eval and export use.
TEST(Run, WhereThereIsAnAverageItIsTheModel) {
  const TestFolder folder;
  const std::string data = make_data(folder), out = folder / "run";
  run(small_request(data, out, {"train.steps=2", "train.ema=0.9"}));
  const std::string checkpoint = out + "/checkpoints/step-00000002";
  const StoredModel stored(out);
  Weights weights(stored.config());
  stored.load(weights, Exec{});
  const SafetensorsFile average(checkpoint + "/average.safetensors"), last(checkpoint + "/model.safetensors");
  const Param& first = weights.table().list().front();
  const auto values_in = [&](const SafetensorsFile& file) {
    std::vector<float> values(first.count);
    file.read(first.name, first.shape, values.data());
    return values;
  };
  const float* loaded = weights.values().data() + first.offset;
  EXPECT_TRUE(std::equal(loaded, loaded + first.count, values_in(average).begin()));
  EXPECT_FALSE(std::equal(loaded, loaded + first.count, values_in(last).begin()));

  std::fstream file(checkpoint + "/average.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-1, std::ios::end).put('x');  // of the same size: only its hash tells
  file.close();
  EXPECT_TRUE(
      contains(message_of<UserError>([&] { StoredModel(checkpoint).config(); }), "average.safetensors"));
}

TEST(Run, ResumeRecordsWhatChangedAndRefusesWhatMayNot) {
  const TestFolder folder;
  const std::string data = make_data(folder), out = folder / "run";
  run(small_request(data, out, {"train.steps=2"}));
  EXPECT_TRUE(contains(message_of<UserError>([&] { run(resume_request(out, {"model.width=64"})); }),
                       "model.width: 32 in the run, 64 asked for"));
  EXPECT_TRUE(contains(message_of<UserError>([&] { run(small_request(data, out)); }), "--resume"));
  EXPECT_TRUE(contains(message_of<UserError>([&] { run(resume_request(folder / "absent")); }), "absent"));
  EXPECT_FALSE(fs::exists(folder / "absent"));

  const std::string config = contents_of(out + "/config.toml");
  EXPECT_EQ(run(resume_request(out, {"train.steps=1"})).step, 2);  // nothing to do, so nothing is changed
  EXPECT_EQ(contents_of(out + "/config.toml"), config);
  EXPECT_EQ(run(resume_request(out, {"train.steps=3", "train.lr=0.01"})).step, 3);
  const Json changed = records(out, "resume").back()["changed"];
  ASSERT_EQ(changed.size(), 2u);
  EXPECT_EQ(changed[0]["key"], "train.steps");
  EXPECT_EQ(changed[1]["after"], "0.01");
  EXPECT_EQ(load_run_config({"", contents_of(out + "/config.toml"), "", {}}).train.steps, 3);
}

TEST(Run, RefusesDataThatChanged) {
  const TestFolder folder;
  const std::string data = make_data(folder), out = folder / "run";
  run(small_request(data, out, {"train.steps=2"}));
  const std::string other = make_data(folder, "other", 120, /*seed=*/2);
  RunRequest request = resume_request(out, {"train.steps=3"});
  request.data = other;
  EXPECT_TRUE(contains(message_of<UserError>([&] { run(request); }), "fingerprint"));
  fs::rename(data, folder / "moved");  // the same data elsewhere is the same data
  request.data = folder / "moved";
  EXPECT_EQ(run(request).step, 3);
  std::ofstream(folder / "moved/tokenizer.json", std::ios::app) << " ";
  request.sets = {"train.steps=4"};
  EXPECT_TRUE(contains(message_of<UserError>([&] { run(request); }), "tokenizer"));
}

TEST(Run, SecondProcessIsRefused) {
  const TestFolder folder;
  const std::string data = make_data(folder), out = folder / "run";
  {
    const RunFolder held(out, RunFolder::Purpose::kNew);
    EXPECT_TRUE(contains(message_of<UserError>([&] { run(small_request(data, out)); }), "another process"));
  }
  EXPECT_EQ(run(small_request(data, out, {"train.steps=1"})).step, 1);  // given back
}

std::vector<std::string> folders_in(const std::string& path) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(path)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

TEST(Run, DamagedNewestCheckpointFallsBackToTheOneBefore) {
  const TestFolder folder;
  const std::string data = make_data(folder), out = folder / "run", all = out + "/checkpoints";
  const auto damage = [&](const std::string& name) {
    fs::resize_file(all + "/" + name + "/optimizer.safetensors", 100);
  };
  run(small_request(
      data, out,
      {"train.steps=8", "train.schedule=constant", "checkpoint.every_steps=4", "checkpoint.keep_best=0"}));
  const auto before = trajectory(out);
  using Names = std::vector<std::string>;
  damage("step-00000008");
  // The damaged one is neither the newest, in whose favour others go, nor deleted.
  const std::vector<std::string> sets = {"train.steps=6", "checkpoint.every_steps=2",
                                         "checkpoint.keep_last=1"};
  EXPECT_EQ(run(resume_request(out, sets)).step, 6);
  EXPECT_EQ(folders_in(all), (Names{"step-00000006", "step-00000008.rejected"}));
  EXPECT_EQ(records(out, "rejected").size(), 1u);
  EXPECT_EQ(run(resume_request(out, {"train.steps=8", "checkpoint.keep_last=2"})).step, 8);
  EXPECT_EQ(trajectory(out), before);
  fs::remove(all + "/step-00000008/manifest.json");
  EXPECT_EQ(run(resume_request(out)).step, 8);
  EXPECT_EQ(folders_in(all),
            (Names{"step-00000006", "step-00000008", "step-00000008.rejected", "step-00000008.rejected-2"}));
}

// Beginning again would throw the whole record of the run away; only its owner decides that.
TEST(Run, RefusesToResumeWhereNoCheckpointIsWhole) {
  const TestFolder folder;
  const std::string data = make_data(folder), out = folder / "run";
  run(small_request(data, out, {"train.steps=4", "checkpoint.every_steps=2"}));
  const std::string metrics = contents_of(out + "/metrics.jsonl");
  for (const char* step : {"2", "4"})
    fs::resize_file(out + "/checkpoints/step-0000000" + step + "/optimizer.safetensors", 100);
  const std::string message = message_of<UserError>([&] { run(resume_request(out)); });
  for (const char* part : {"step-00000002/optimizer.safetensors: 100 bytes", "step-00000004/optimizer",
                           "Put back", "removed, --resume begins again from step 0"})
    EXPECT_TRUE(contains(message, part)) << message;
  EXPECT_EQ(contents_of(out + "/metrics.jsonl"), metrics);
  EXPECT_EQ(list_checkpoints(out + "/checkpoints").size(), 2u);
  fs::remove_all(out + "/checkpoints");
  EXPECT_EQ(run(resume_request(out)).step, 4);
}

// The second best falls on no step at which a checkpoint is due: it was saved because it was the best then.
TEST(Run, PrunesToTheNewestAndTheBest) {
  const TestFolder folder;
  const std::string data = make_data(folder), out = folder / "run";
  run(small_request(data, out,
                    {"train.steps=10", "eval.every=4", "checkpoint.every_steps=3", "checkpoint.keep_last=1",
                     "checkpoint.keep_best=2"}));
  for (const Json& validation : records(out, "validation"))
    ASSERT_TRUE(validation["best"].get<bool>()) << to_line(validation);
  std::vector<Index> kept;
  for (const CheckpointEntry& entry : list_checkpoints(out + "/checkpoints")) kept.push_back(entry.step);
  EXPECT_EQ(kept, (std::vector<Index>{8, 10}));
}

TEST(Prune, KeepsTheBestOfThoseValidated) {
  const TestFolder folder;
  const auto make = [&](Index step, const char* last_validation) {
    CheckpointWriter writer(folder.path(), step);
    writer.add_text(
        "trainer.json",
        fmt::format(R"({{"format":"ddl-trainer","version":1,"progress":{{"last_validation":{}}}}})",
                    last_validation));
    writer.commit();
  };
  make(1, R"({"step":1,"loss":2.0})");
  make(2, R"({"step":2,"loss":1.0})");
  make(3, R"({"step":2,"loss":1.0})");  // not its own
  make(4, R"({"step":4,"loss":null})");
  make(5, R"({"step":5,"loss":1.5})");
  make(6, "null");
  const auto left = [&] {
    std::vector<Index> steps;
    for (const CheckpointEntry& e : list_checkpoints(folder.path())) steps.push_back(e.step);
    return steps;
  };
  prune_checkpoints(folder.path(), 1, 2);
  EXPECT_EQ(left(), (std::vector<Index>{2, 5, 6}));
  prune_checkpoints(folder.path(), 1, 0);
  EXPECT_EQ(left(), (std::vector<Index>{6}));
}

// Replaces a checkpoint by one whose embedding makes every gradient overflow, without a value in the file
// that is not finite.
void ruin(const std::string& run_folder, const std::string& data, const std::string& name) {
  const RunConfig config = load_run_config({"", contents_of(run_folder + "/config.toml"), "", {}});
  const Dataset dataset = Dataset::open(data, kOneThread);
  Trainer trainer(config, dataset, kOneThread);
  load_checkpoint(run_folder + "/checkpoints/" + name, trainer);
  const float ruin =
      2e18f / static_cast<float>(config.model.embedding_start_std());  // more, and squares overflow
  for (const Param& p : trainer.model().weights().table().list())
    if (p.name == "transformer.wte.weight")
      for (Index i = p.offset; i < p.offset + p.count; ++i) trainer.model().weights().values()[i] *= ruin;
  trainer.model().upload(kOneThread);
  CheckpointSaver saver(run_folder + "/checkpoints", trainer, fixed_files(config.model, dataset),
                        Json::object());
  saver.save(CheckpointSaver::Prune::kNo, Exec{});
  saver.wait();
}

// A loss that is not finite is skipped and counted; five in a row end the run with its state saved.
TEST(Run, StopsOnLossesThatAreNotFinite) {
  const TestFolder folder;
  const std::string data = make_data(folder), out = folder / "run";
  run(small_request(data, out, {"train.steps=2"}));
  ruin(out, data, "step-00000002");
  const std::string message = message_of<UserError>([&] { run(resume_request(out, {"train.steps=50"})); });
  for (const char* part :
       {"5 updates in a row", "train.lr", "no checkpoint from before", "begins again from step 0"})
    EXPECT_TRUE(contains(message, part)) << message;
  const auto steps = records(out, "step");
  ASSERT_EQ(steps.size(), 2u + kMaxSkippedInARow);
  EXPECT_TRUE(steps.back()["skipped"].get<bool>());
  EXPECT_TRUE(steps.back()["loss"].is_null() || steps.back()["grad_norm"].is_null());
  const std::string aside = out + "/checkpoints/step-00000007.not-finite";
  verify_checkpoint(aside);
  const Json trainer_json = read_trainer_json(aside);
  EXPECT_EQ(trainer_json["progress"]["skipped"], kMaxSkippedInARow);
  EXPECT_EQ(trainer_json["updates"], 2);  // none of the skipped ones counts for the bias correction
  EXPECT_EQ(run(resume_request(out, {"train.steps=3"})).step, 3);
  for (const Json& step : records(out, "step")) EXPECT_FALSE(step.contains("skipped")) << to_line(step);
}

// No update is to blame, so none is undone.
TEST(Run, StopsOnWeightsThatWereNeverFinite) {
  const TestFolder folder;
  const std::string data = make_data(folder), model = folder / "model", out = folder / "run";
  run(small_request(data, model, {"train.steps=1"}));
  ruin(model, data, "step-00000001");
  RunRequest request;
  request.data = data, request.out = out, request.from = model;
  request.sets = {"train.batch=4", "log.floor=false"};
  request.style = Console::Style::kSilent;
  EXPECT_TRUE(contains(message_of<UserError>([&] { run(request); }), "no update was made yet"));
  EXPECT_EQ(records(out, "stopped").back()["resume_step"], kMaxSkippedInARow);
  verify_checkpoint(out + "/checkpoints/step-00000000");
  fs::remove_all(out + "/checkpoints");
  EXPECT_TRUE(contains(message_of<UserError>([&] { run(resume_request(out)); }), "a new run --from there"));
}

// Weights that were ruined in an earlier session are not gone on from either.
TEST(Run, WhatIsNotFiniteIsFollowedThroughSessions) {
  const TestFolder folder;
  const std::string data = make_data(folder), out = folder / "run";
  run(small_request(data, out, {"train.steps=4", "checkpoint.every_steps=2", "checkpoint.keep_last=9"}));
  ruin(out, data, "step-00000004");
  EXPECT_EQ(run(resume_request(out, {"train.steps=6"})).step,
            6);  // two skipped updates are no reason to stop
  const std::string message = message_of<UserError>([&] { run(resume_request(out, {"train.steps=20"})); });
  EXPECT_TRUE(contains(message, "--resume continues from " + out + "/checkpoints/step-00000002,")) << message;
  EXPECT_TRUE(contains(message, "step-00000011.not-finite")) << message;  // five attempts again, not three
  EXPECT_FALSE(fs::exists(out + "/checkpoints/step-00000006"));
}

// What the message advises works: --resume continues from before the update that ruined the weights, though
// checkpoints were due all the time since.
TEST(Run, ResumeAfterLossesThatAreNotFiniteGoesBackBeforeThem) {
  const TestFolder folder;
  const std::string data = make_data(folder), out = folder / "run";
  run(small_request(
      data, out,
      {"train.steps=4", "checkpoint.every_steps=2", "checkpoint.keep_last=2", "checkpoint.keep_best=0"}));
  ruin(out, data, "step-00000004");
  const std::string message = message_of<UserError>([&] {
    run(resume_request(out, {"train.steps=12", "checkpoint.every_steps=1"}));
  });
  EXPECT_TRUE(contains(message, "--resume continues from " + out + "/checkpoints/step-00000002")) << message;
  EXPECT_TRUE(contains(message, "kept aside as " + out + "/checkpoints/step-00000009.not-finite")) << message;
  EXPECT_EQ(records(out, "stopped").back()["resume_step"], 2);
  EXPECT_EQ(run(resume_request(out, {"train.lr=0.0003"})).step, 12);
  EXPECT_EQ(records(out, "step").size(), 12u);
  for (const Json& step : records(out, "step")) EXPECT_FALSE(step.contains("skipped")) << to_line(step);
  verify_checkpoint(out + "/checkpoints/step-00000009.not-finite");
}

// No room for the second checkpoint: an error that names the file, and the first as it was.
TEST(Run, FullDiskKeepsTheOldCheckpoint) {
  const TestFolder folder;
  const std::string data = make_data(folder), out = folder / "run";
  run(small_request(data, out, {"train.steps=2", "checkpoint.keep_last=1", "checkpoint.keep_best=0"}));
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{100000, 100000};  // enough for records, too little for the model
    ::setrlimit(RLIMIT_FSIZE, &limit);
    try {
      run(resume_request(out, {"train.steps=4"}));
    } catch (const UserError& error) {
      ::_exit(contains(error.what(), "safetensors") ? 0 : 2);
    }
    ::_exit(1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  const auto latest = latest_valid_checkpoint(out + "/checkpoints");
  ASSERT_TRUE(latest);
  EXPECT_EQ(latest->step, 2);
  EXPECT_EQ(run(resume_request(out, {"train.steps=4"})).step, 4);  // and the run goes on when there is room
}

// Into a dataset, say; but a run that was killed before it began may begin.
TEST(RunFolder, ANewRunTakesNoFolderOfOthers) {
  const TestFolder folder;
  const std::string data = make_data(folder);
  const auto before = folders_in(data);
  EXPECT_TRUE(
      contains(message_of<UserError>([&] { run(small_request(data, data)); }), "is no run, but holds"));
  EXPECT_EQ(folders_in(data), before);
  fs::create_directory(folder / "empty");
  EXPECT_EQ(run(small_request(data, folder / "empty", {"train.steps=1"})).step, 1);
  fs::create_directories(folder / "killed/checkpoints");
  folder.write("killed/.lock", "");
  EXPECT_EQ(run(small_request(data, folder / "killed", {"train.steps=1"})).step, 1);
}

TEST(RunFolder, RewindDropsLaterRecordsAndCutLines) {
  const TestFolder folder;
  const RunFolder run_folder(folder / "run", RunFolder::Purpose::kNew);
  folder.write("run/metrics.jsonl",
               "{\"event\":\"start\"}\n{\"event\":\"step\",\"step\":3}\n{\"event\":\"step\",\"step\":4}\n{"
               "\"event\":\"st");
  run_folder.rewind_metrics(3);
  EXPECT_EQ(contents_of(folder / "run/metrics.jsonl"),
            "{\"event\":\"start\"}\n{\"event\":\"step\",\"step\":3}\n");
}

// Rows that fill up the last batch do not count, and the result does not depend on the batch size.
TEST(Validation, DoesNotDependOnTheBatch) {
  const TestFolder folder;
  const Dataset data = Dataset::open(make_data(folder), kOneThread);
  std::vector<ValidationResult> results;
  for (const Index batch : {1, 4, 7}) {
    RunConfig c = load_run_config({"", "", "", small_sets({fmt::format("train.batch={}", batch)})});
    resolve_with_data(c, data, kOneThread);
    Trainer trainer(c, data, kOneThread);
    Validator validator(data, 48, 5);
    results.push_back(validator.run(trainer.model(), kOneThread));
  }
  EXPECT_EQ(results[0].targets, 5 * 48);
  EXPECT_GT(results[0].answer_tokens, 0);
  EXPECT_GT(results[0].answers, 0);
  for (const ValidationResult& r : results) {
    EXPECT_EQ(r.loss, results[0].loss);
    EXPECT_EQ(r.targets, results[0].targets);
    EXPECT_EQ(r.correct_answer_tokens, results[0].correct_answer_tokens);
  }
}

TEST(Run, StartsFromAModelAndKeepsItAsStepZero) {
  const TestFolder folder;
  const std::string data = make_data(folder), first = folder / "first", second = folder / "second";
  run(small_request(data, first, {"train.steps=2", "model.residual=ddl-tc"}));
  RunRequest request;  // no sizes: they are the model's
  request.data = data, request.out = second, request.from = first;
  request.sets = {"train.steps=3", "train.batch=4", "log.floor=false", "train.seed=5"};
  request.style = Console::Style::kSilent;
  run(request);
  EXPECT_EQ(contents_of(second + "/checkpoints/step-00000000/model.safetensors"),
            contents_of(first + "/checkpoints/step-00000002/model.safetensors"));
  EXPECT_EQ(parse_json(contents_of(second + "/run.json"))["started_from"],
            first + "/checkpoints/step-00000002");
  const double fresh = records(first, "step")[0]["loss"], started = records(second, "step")[0]["loss"];
  EXPECT_LT(started, fresh) << "it knows what the first run learnt";

  // Killed before its first checkpoint: what is resumed began with the model, not with random weights.
  const auto whole = trajectory(second);
  fs::remove_all(second + "/checkpoints/step-00000003");
  run(resume_request(second));
  EXPECT_EQ(trajectory(second), whole);

  request.resume = true;
  EXPECT_TRUE(contains(message_of<UserError>([&] { run(request); }), "give one of them"));
  request.resume = false, request.out = folder / "third";
  request.sets.push_back("model.width=64");
  EXPECT_TRUE(
      contains(message_of<UserError>([&] { run(request); }), "model.width: 32 in the model, 64 asked for"));
  request.sets = {"preset=small"};  // or --preset: the sizes are the model's
  EXPECT_TRUE(contains(message_of<UserError>([&] { run(request); }), "leave the preset out"));
  request.sets.clear(), request.preset = "small";
  EXPECT_TRUE(contains(message_of<UserError>([&] { run(request); }), "leave the preset out"));
}

// The vocabulary is a matter between the model and the data: the user set no model.vocab.
TEST(Run, StartingFromAModelOfOtherTokensSaysWhatToDo) {
  const TestFolder folder;
  const std::string data = make_data(folder), model = folder / "model";
  run(small_request(data, model, {"train.steps=1", "model.vocab=257"}));
  const std::string text = folder.write("words.txt", "the cat sat on the mat and the cat sat on the hat\n");
  WordCounter words(kOneThread);
  words.add(contents_of(text));
  PrepareOptions prepare;
  prepare.inputs = {text}, prepare.out = folder / "words", prepare.val_fraction = 0;
  prepare_dataset(prepare, BpeTokenizer(train_bpe(words, 262)), kOneThread);
  RunRequest request;
  request.data = prepare.out, request.out = folder / "run", request.from = model;
  request.style = Console::Style::kSilent;
  const auto message = [&] { return message_of<UserError>([&] { run(request); }); };
  EXPECT_TRUE(contains(message(), "its tokenizer (")) << message();
  EXPECT_TRUE(contains(message(), "prepare the data with it")) << message();
  request.from = folder / "weights";  // a model without its tokenizer, as `import` may leave it
  fs::create_directory(request.from);
  for (const char* file : {"model.safetensors", "config.json"})
    fs::copy(model + "/checkpoints/step-00000001/" + file, request.from);
  EXPECT_TRUE(contains(message(), "a model of 257 tokens")) << message();
}

}  // namespace
}  // namespace ddl
