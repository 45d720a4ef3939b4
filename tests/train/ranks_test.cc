// Training on several ranks, which here are threads: the same losses as one rank alone, whatever the number
// of ranks, with and without a shared optimizer state; and what happens where ranks differ or are lost.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "core/error.h"
#include "dist/threads_comm.h"
#include "io/checkpoint_folder.h"
#include "model/engine.h"
#include "model/residual/registry.h"
#include "small_run.h"
#include "train/gradient_reducer.h"
#include "train/handshake.h"
#include "train/run.h"
#include "train/shared_state.h"
#include "train/trainer.h"

namespace ddl::ranks_test {

namespace fs = std::filesystem;

const std::vector<std::string> kSteps = {"train.steps=6", "train.accumulate=4", "train.batch=2"};

std::vector<std::string> with(std::vector<std::string> sets, const std::vector<std::string>& more) {
  sets.insert(sets.end(), more.begin(), more.end());
  return sets;
}

std::string text_of(const std::exception_ptr& thrown) {
  if (!thrown) return "";
  try {
    std::rethrow_exception(thrown);
  } catch (const std::exception& error) {
    return error.what();
  }
}

// The run on so many ranks; what each threw. `change` may alter a rank's request.
std::vector<std::string> run_on(
    int ranks, const RunRequest& request,
    const std::function<void(int rank, RunRequest&)>& change = [](int, RunRequest&) {}) {
  const StopSignals signals;
  std::vector<std::string> errors;
  for (const std::exception_ptr& thrown : ThreadRanks(ranks).run([&](Comm& comm) {
         RunRequest own = request;
         own.comm = &comm;
         change(comm.rank(), own);
         run_training(own, signals, kOneThread);
       }))
    errors.push_back(text_of(thrown));
  return errors;
}

std::vector<double> losses(const std::string& run_folder, const char* event = "step") {
  std::vector<double> all;
  for (const Json& record : records(run_folder, event)) all.push_back(record.at("loss").get<double>());
  return all;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size() || a.empty()) return INFINITY;
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

bool all_well(const std::vector<std::string>& errors) {
  return std::all_of(errors.begin(), errors.end(), [](const std::string& error) { return error.empty(); });
}

TEST(Ranks, HaveTheLossesOfOneRank) {
  const TestFolder folder;
  const std::string data = make_data(folder);
  for (const char* rule : {"ddl-cc", "ddl-tc", "baseline"}) {
    const auto sets = with(kSteps, {std::string("model.residual=") + rule});
    const std::string one = folder / (std::string(rule) + "1");
    run(small_request(data, one, sets));
    for (const int ranks : {2, 4}) {
      const std::string several = folder / (rule + std::to_string(ranks));
      ASSERT_TRUE(all_well(run_on(ranks, small_request(data, several, sets))));
      EXPECT_EQ(losses(several)[0], losses(one)[0]) << "the first loss is that of the same numbers";
      EXPECT_LT(largest_difference(losses(several), losses(one)), 1e-6) << rule << " on " << ranks;
      EXPECT_LT(largest_difference(losses(several, "validation"), losses(one, "validation")), 1e-6);
      // AdamW after clipping would not notice gradients that are too large by a factor.
      const std::vector<Json> of_several = records(several, "step"), of_one = records(one, "step");
      for (std::size_t i = 0; i < of_one.size(); ++i) {
        const double norm = of_one[i].at("grad_norm").get<double>();
        EXPECT_NEAR(of_several.at(i).at("grad_norm").get<double>(), norm, 1e-5 * norm)
            << rule << " step " << i;
      }
      EXPECT_EQ(records(several, "start")[0]["ranks"], ranks);
      for (const char* key : {"answer_accuracy", "exact_answers", "targets"})
        EXPECT_EQ(records(several, "validation")[0][key], records(one, "validation")[0][key]) << key;
    }
  }
}

// A micro-batch that a rank left out would go unnoticed in losses that are close anyway: here every batch differs.
TEST(Ranks, TakeEveryMicroBatchOnce) {
  const TestFolder folder;
  const std::string data = make_data(folder);
  const auto sets = with(kSteps, {"train.lr=0"});
  run(small_request(data, folder / "one", sets));
  ASSERT_TRUE(all_well(run_on(4, small_request(data, folder / "four", sets))));
  EXPECT_EQ(losses(folder / "four"), losses(folder / "one"));
}

TEST(Ranks, EndWithTheSameParametersAndFiles) {
  const TestFolder folder;
  const std::string data = make_data(folder);
  const StopSignals signals;
  RunRequest request = small_request(data, folder / "run", kSteps);
  RunConfig config = load_run_config({"", "", "", request.sets});
  const Dataset dataset = Dataset::open(data, kOneThread);
  resolve_with_data(config, dataset, kOneThread);
  std::vector<std::vector<float>> parameters(2);
  const auto thrown = ThreadRanks(2).run([&](Comm& comm) {
    Trainer trainer(config, dataset, kOneThread, comm);
    for (int step = 0; step < 5; ++step) trainer.step();
    const auto values = trainer.model().weights().values();
    parameters[static_cast<std::size_t>(comm.rank())].assign(values.begin(), values.end());
    check_same_weights(comm, trainer.model().weights());
  });
  EXPECT_EQ(text_of(thrown[0]) + text_of(thrown[1]), "");
  EXPECT_EQ(parameters[0], parameters[1]);
  EXPECT_FALSE(parameters[0].empty());
}

TEST(Ranks, OtherWeightsAreRefused) {
  const ModelConfig config = load_run_config({"", "", "", {"model.vocab=64"}}).model;
  const auto thrown = ThreadRanks(2).run([&](Comm& comm) {
    Weights weights(config, 1, kOneThread);
    if (comm.rank() == 1) weights.values().back() += 1;
    check_same_weights(comm, weights);
  });
  EXPECT_NE(text_of(thrown[0]).find("rank 1 has other weights than rank 0"), std::string::npos);
  EXPECT_TRUE(thrown[1]);
}

// Small weights are compared too: one code of one matrix is enough to be refused.
TEST(Ranks, OtherSmallWeightsAreRefused) {
  const ModelConfig config = load_run_config({"", "", "", {"model.vocab=64"}}).model;
  for (const bool other : {false, true}) {
    const auto thrown = ThreadRanks(2).run([&](Comm& comm) {
      Weights weights = to_format(Weights(config, 1, kOneThread), WeightFormat::kQ8, kOneThread);
      if (other && comm.rank() == 1) {
        const auto& params = weights.table().list();
        const Param& param =
            *std::find_if(params.begin(), params.end(), [](const Param& p) { return p.embedding; });
        std::vector<float> numbers(static_cast<std::size_t>(param.count));
        weights.packed()->unpack(numbers.data(), param, kOneThread);
        std::swap(numbers[0], numbers[1]);
        weights.packed()->pack(param, numbers.data(), kOneThread);
      }
      check_same_weights(comm, weights);
    });
    EXPECT_EQ(text_of(thrown[0]).find("rank 1 has other weights than rank 0") != std::string::npos, other);
    EXPECT_EQ(thrown[1] != nullptr, other);
  }
}

// Sharing the state out changes no bit: the same gradients, the same updates, only made elsewhere.
TEST(Ranks, SharedStateChangesNoBit) {
  const TestFolder folder;
  const std::string data = make_data(folder);
  int kind = 0;
  for (const std::vector<std::string>& more : {std::vector<std::string>{},
                                               {"train.optimizer=muon", "train.ema=0.9"},
                                               {"model.precision=bf16", "train.ema=0.9"}}) {
    const auto sets = with(kSteps, more);
    const std::string whole = folder / fmt::format("whole{}", kind),
                      shared = folder / fmt::format("shared{}", kind);
    ++kind;
    ASSERT_TRUE(all_well(run_on(4, small_request(data, whole, sets))));
    ASSERT_TRUE(all_well(run_on(4, small_request(data, shared, with(sets, {"train.zero=true"})))));
    EXPECT_EQ(trajectory(whole), trajectory(shared));
    for (const char* file : {"model.safetensors", "optimizer.safetensors"})
      EXPECT_EQ(contents_of(whole + "/checkpoints/step-00000006/" + file),
                contents_of(shared + "/checkpoints/step-00000006/" + file))
          << file;
  }
}

TEST(Ranks, KeepAPartOfTheState) {
  const TestFolder folder;
  const std::string data = make_data(folder);
  RunConfig config = load_run_config({"", "", "", small_sets(with(kSteps, {"train.zero=true"}))});
  const Dataset dataset = Dataset::open(data, kOneThread);
  resolve_with_data(config, dataset, kOneThread);
  std::vector<Index> floats(4);
  ThreadRanks(4).run([&](Comm& comm) {
    const Trainer trainer(config, dataset, kOneThread, comm);
    for (const NamedArray& array : const_cast<Trainer&>(trainer).model().optimizer().state())
      for (const NamedArray::Tensor& t : array.tensors)
        floats[static_cast<std::size_t>(comm.rank())] += param_table(config.model).list()[t.param].count;
  });
  Index all = 0;
  for (const Index count : floats) all += count;
  EXPECT_EQ(all, 2 * param_table(config.model).parameter_count()) << "each state is kept once";
  EXPECT_GT(*std::min_element(floats.begin(), floats.end()), 0);
}

TEST(Ranks, AnotherNumberOfThemResumes) {
  const TestFolder folder;
  const std::string data = make_data(folder);
  const std::string whole = folder / "whole";
  run(small_request(data, whole, with(kSteps, {"train.steps=9"})));
  for (const char* zero : {"train.zero=false", "train.zero=true"}) {
    const std::string parts = folder / zero;
    const auto until = [&](int step) {  // a run that is stopped after this step keeps that checkpoint alone
      for (const CheckpointEntry& entry : list_checkpoints(parts + "/checkpoints"))
        if (entry.step > step) remove_checkpoint(entry.folder);
    };
    const auto saving = with(kSteps, {"train.steps=9", "checkpoint.every_steps=3", "checkpoint.keep_last=9",
                                      "checkpoint.keep_best=0", zero});
    run(small_request(data, parts, saving));
    until(3);
    ASSERT_TRUE(all_well(run_on(2, resume_request(parts))));
    until(6);
    run(resume_request(parts));
    EXPECT_LT(largest_difference(losses(parts), losses(whole)), 1e-6) << zero;
    EXPECT_EQ(records(parts, "resume").size(), 2u);
  }
}

TEST(Ranks, AModelToStartFromIsLoadedByAll) {
  const TestFolder folder;
  const std::string data = make_data(folder);
  run(small_request(data, folder / "first", with(kSteps, {"train.steps=2"})));
  RunRequest request = small_request(data, folder / "one", kSteps);
  request.from = folder / "first";
  run(request);
  request.out = folder / "two";
  request.sets.push_back("train.zero=true");
  ASSERT_TRUE(all_well(run_on(2, request)));
  EXPECT_LT(largest_difference(losses(folder / "one"), losses(folder / "two")), 1e-6);
}

TEST(Ranks, OnesThatDifferAreRefusedWithTheDifference) {
  const TestFolder folder;
  const std::string data = make_data(folder), other = make_data(folder, "other", 120, 2);
  const auto refused = [&](const std::function<void(RunRequest&)>& change) {
    const std::vector<std::string> errors =
        run_on(2, small_request(data, folder / "run", kSteps), [&](int rank, RunRequest& request) {
          if (rank == 1) change(request);
        });
    EXPECT_FALSE(errors[1].empty());
    fs::remove_all(folder / "run");
    return errors[0];
  };
  const auto says = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  const std::string config = refused([](RunRequest& r) { r.sets.push_back("train.lr=0.002"); });
  EXPECT_TRUE(says(config, "config.train.lr: 0.001 on rank 0, 0.002 on rank 1")) << config;
  const std::string version = refused([](RunRequest& r) { r.version = "9"; });
  EXPECT_TRUE(says(version, "version: \"\" on rank 0, \"9\" on rank 1")) << version;
  const std::string contents = refused([&](RunRequest& r) { r.data = other; });
  EXPECT_TRUE(says(contents, "data.fingerprint")) << contents;
  EXPECT_FALSE(says(contents, "folder")) << contents;
  const std::string missing = refused([&](RunRequest& r) { r.data = folder / "nowhere"; });
  EXPECT_TRUE(says(missing, "rank 1: ")) << missing;
}

TEST(Ranks, EveryDifferenceCounts) {
  const Json same{
      {"version", "1"}, {"config", {{"a", {{"b", 1}}}}}, {"data", {{"c", 2}}}, {"tokenizer_sha256", "x"}};
  const auto begin = [&](const std::string& changed) {
    const auto thrown = ThreadRanks(2).run([&](Comm& comm) {
      Json mine = same;
      if (comm.rank() == 1 && !changed.empty()) mine[Json::json_pointer(changed)] = "other";
      agree_to_begin(comm, mine, nullptr);
    });
    EXPECT_EQ(thrown[0] != nullptr, thrown[1] != nullptr) << changed;
    return text_of(thrown[0]);
  };
  EXPECT_EQ(begin(""), "");
  const Json leaves = same.flatten();
  for (const auto& [path, value] : leaves.items()) {
    std::string name = path.substr(1);
    std::replace(name.begin(), name.end(), '/', '.');
    EXPECT_NE(begin(path).find(name + ": " + to_line(value) + " on rank 0, \"other\" on rank 1"),
              std::string::npos)
        << begin(path);
  }
}

// Rank 0's clock says when to save: with a shared state, a rank that followed its own would wait for the others for ever.
TEST(Ranks, SaveByTheClockTogether) {
  const TestFolder folder;
  const std::string data = make_data(folder);
  const auto sets = with(kSteps, {"train.steps=20", "train.zero=true", "checkpoint.every_minutes=0.0002",
                                  "checkpoint.keep_last=100"});
  EXPECT_TRUE(all_well(run_on(2, small_request(data, folder / "run", sets))));
  EXPECT_GT(list_checkpoints(folder / "run/checkpoints").size(), 1u);
}

// A launcher may end a job when its first rank ends: none does before rank 0 has saved.
TEST(Ranks, StayUntilRank0HasSaved) {
  const TestFolder folder;
  const std::string data = make_data(folder);
  for (int attempt = 0; attempt < 5; ++attempt) {
    const std::string out = folder / fmt::format("run{}", attempt);
    const StopSignals signals;
    bool saved = false;
    const auto thrown = ThreadRanks(2).run([&](Comm& comm) {
      RunRequest request = small_request(data, out, kSteps);
      request.comm = &comm;
      run_training(request, signals, kOneThread);
      if (comm.rank() == 1) saved = fs::exists(out + "/checkpoints/step-00000006");
    });
    EXPECT_EQ(text_of(thrown[0]) + text_of(thrown[1]), "");
    EXPECT_TRUE(saved) << attempt;
  }
}

// Where one rank has a GPU and another none, both end, and rank 0 says why.
TEST(Ranks, AgreeOnWhatCarriesTheGradients) {
  const auto agree = [](const std::vector<std::string>& gpus) {
    std::vector<Backend> chosen(gpus.size());
    const auto thrown = ThreadRanks(2).run([&](Comm& comm) {
      const auto rank = static_cast<std::size_t>(comm.rank());
      chosen[rank] = agree_on_backend(comm, {"here", gpus[rank]});
    });
    EXPECT_EQ(chosen[0], chosen[1]);
    EXPECT_EQ(thrown[0] != nullptr, thrown[1] != nullptr);
    return std::pair(chosen[0], text_of(thrown[0]));
  };
  EXPECT_EQ(agree({"", ""}), std::pair(Backend::kGloo, std::string()));
  EXPECT_EQ(agree({"a", "b"}), std::pair(Backend::kNccl, std::string()));
  EXPECT_NE(agree({"a", ""}).second.find("rank 1 computes on the CPU"), std::string::npos);
}

TEST(Ranks, MustDivideTheMicroBatches) {
  const TestFolder folder;
  const std::string data = make_data(folder);
  const auto errors = run_on(3, small_request(data, folder / "run", kSteps));
  EXPECT_EQ(errors[0],
            "3 ranks share out the 4 micro-batches of a step (train.accumulate) evenly: expected 1 or 2 or 4 "
            "ranks");
  EXPECT_FALSE(fs::exists(folder / "run/config.toml"));
  const auto one = run_on(2, small_request(data, folder / "run", {"train.batch=4"}));
  EXPECT_NE(one[0].find("--set train.batch=2 --set train.accumulate=2"), std::string::npos) << one[0];
}

// Rank 1 never comes, or is lost in the middle of a step: rank 0 says so, and the step leaves no trace.
TEST(Ranks, OneThatIsLostIsAnErrorOfTheOthers) {
  const TestFolder folder;
  const std::string data = make_data(folder), out = folder / "run";
  const std::vector<std::string> errors =
      run_on(2, small_request(data, out, kSteps), [](int rank, RunRequest&) {
        if (rank == 1) throw UserError("lost");
      });
  EXPECT_EQ(errors[1], "lost");
  EXPECT_NE(errors[0].find("lost"), std::string::npos) << errors[0];

  // The same after two steps.
  RunConfig config = load_run_config({"", "", "", small_sets(kSteps)});
  const Dataset dataset = Dataset::open(data, kOneThread);
  resolve_with_data(config, dataset, kOneThread);
  Index steps = -1;
  float largest_gradient = -1;
  const auto thrown = ThreadRanks(2).run([&](Comm& comm) {
    Trainer trainer(config, dataset, kOneThread, comm);
    trainer.step(), trainer.step();
    if (comm.rank() == 1) throw UserError("lost");
    try {
      trainer.step();
    } catch (const CommError&) {
      steps = trainer.progress().step;
      largest_gradient = 0;
      for (const float g : trainer.model().gradients())
        largest_gradient = std::max(largest_gradient, std::abs(g));
      throw;
    }
  });
  EXPECT_EQ(text_of(thrown[0]), "a rank is lost");
  EXPECT_EQ(steps, 2) << "the step leaves no trace";
  EXPECT_EQ(largest_gradient, 0);
}

TEST(Ranks, OneNotFiniteLossIsSkippedByAll) {
  const TestFolder folder;
  const std::string data = make_data(folder);
  const auto errors = run_on(
      2, small_request(data, folder / "run",
                       with(kSteps, {"train.lr=1e5", "train.clip=0", "train.warmup=0", "train.steps=60"})));
  EXPECT_NE(errors[0].find("not finite"), std::string::npos) << errors[0];
  EXPECT_FALSE(errors[1].empty());
}

TEST(GradientReducer, SendsNeighboursTogetherAndEverythingOnce) {
  constexpr Index kFloats = 100;
  std::vector<std::vector<float>> arrays(2, std::vector<float>(kFloats));
  for (Index i = 0; i < kFloats; ++i)
    arrays[0][i] = static_cast<float>(i), arrays[1][i] = static_cast<float>(1000 + i);
  ThreadRanks ranks(2);
  ranks.run([&](Comm& comm) {
    GradientReducer reducer(comm, arrays[static_cast<std::size_t>(comm.rank())], 30);
    reducer.ready(80, 90), reducer.ready(70, 80), reducer.ready(60, 70);    // full: one message
    reducer.ready(50, 60), reducer.ready(10, 50);                           // full
    reducer.ready(0, 10), reducer.ready(90, 100), reducer.ready(100, 100);  // not neighbours: two more
    reducer.finish();
  });
  EXPECT_EQ(ranks.operations(), 4);
  for (Index i = 0; i < kFloats; ++i) {
    EXPECT_EQ(arrays[0][i], static_cast<float>(1000 + 2 * i)) << i;
    EXPECT_EQ(arrays[1][i], arrays[0][i]) << i;
  }
}

// The native engine says of every gradient once that it is final, and it is: nothing changes it afterwards.
TEST(GradientsReady, AreFinalAndComplete) {
  for (const std::string& rule : rule_names()) {
    RunConfig config =
        load_run_config({"", "", "", small_sets({"model.residual=" + rule, "model.vocab=64"})});
    const auto model = make_trainable(config.model, {2, 16}, config.train.optimizer, 1, kOneThread);
    std::vector<std::int32_t> tokens(32), targets(32);
    for (int i = 0; i < 32; ++i) tokens[i] = i * 7 % 64, targets[i] = i * 5 % 64;
    const Index floats = std::ssize(model->gradients());
    std::vector<int> said(static_cast<std::size_t>(floats));
    std::vector<float> then(static_cast<std::size_t>(floats));
    model->loss_and_grad_in_parts(
        {tokens.data(), targets.data()}, 1,
        [&](Index begin, Index end) {
          for (Index i = begin; i < end; ++i) ++said[i], then[i] = model->gradients()[i];
        },
        kOneThread);
    EXPECT_EQ(std::count(said.begin(), said.end(), 1), floats) << rule;
    EXPECT_TRUE(std::equal(then.begin(), then.end(), model->gradients().begin())) << rule;
  }
}

TEST(StateOwners, AreRunsOfNeighboursOfAboutEqualSize) {
  ParamTable table;
  for (int i = 0; i < 40; ++i) table.add("t" + std::to_string(i), {16}, Init::constant(0));
  const std::vector<int> owners = state_owners(table, 4);
  EXPECT_TRUE(std::is_sorted(owners.begin(), owners.end()));
  for (int r = 0; r < 4; ++r) EXPECT_EQ(std::count(owners.begin(), owners.end(), r), 10);
  EXPECT_EQ(state_owners(table, 1), std::vector<int>(40, 0));
}

}  // namespace ddl::ranks_test
