// Small models in folders, and a server of them.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/clock.h"
#include "core/rng.h"
#include "data/tokenizer.h"
#include "io/checkpoint_folder.h"
#include "io/safetensors.h"
#include "model/config_json.h"
#include "model/weights.h"
#include "serve/client.h"
#include "serve/server.h"
#include "test_folder.h"

namespace ddl {

inline void pause_for(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

// Whether it holds, now or within a while.
template <class Condition>
bool soon(Condition&& condition, double seconds = 20) {
  for (const double until = now() + seconds; now() < until; pause_for(0.002))
    if (condition()) return true;
  return condition();
}

// A model of bytes, far from any special point, so that its texts are varied.
inline Weights small_weights(const std::string& residual = "ddl-cc", std::uint64_t seed = 1) {
  ModelConfig config;
  config.layers = 2, config.width = 32, config.heads = 2, config.mlp = 48, config.vocab = 260,
  config.context = 96;
  config.precision = Precision::kF32;
  config.use_residual(residual);
  Weights weights(config);
  for (const Param& p : weights.table().list()) {
    const Random random(seed, p.name);
    const bool norm = p.name.ends_with("ln_1.weight") || p.name.ends_with("ln_2.weight") ||
                      p.name.ends_with("ln_f.weight") || p.name.ends_with("_rms.weight");
    for (Index i = 0; i < p.count; ++i)
      weights.values()[p.offset + i] =
          static_cast<float>((norm ? 1.0 : 0.0) + 0.25 * random.normal(static_cast<std::uint64_t>(i)));
  }
  weights.update_copy(Exec{});
  return weights;
}

inline std::vector<TensorToWrite> tensors_of(const Weights& weights) {
  std::vector<TensorToWrite> tensors;
  for (const Param& p : weights.table().list())
    tensors.push_back({p.name, "F32", p.shape, weights.values().data() + p.offset});
  return tensors;
}

inline std::string write_model(const std::string& folder, const Weights& weights) {
  std::filesystem::create_directories(folder);
  write_safetensors(folder + "/model.safetensors", tensors_of(weights), {{"format", "pt"}});
  load_tokenizer("bytes")->save(folder);
  std::ofstream(folder + "/config.json") << to_text(model_config_json(weights.config()));
  return folder;
}

// As `ddl train` leaves it.
inline void write_checkpoint(const std::string& run, Index step, const Weights& weights) {
  std::filesystem::create_directories(run + "/checkpoints");
  load_tokenizer("bytes")->save(run);
  CheckpointWriter writer(run + "/checkpoints", step);
  writer.add_text("config.json", to_text(model_config_json(weights.config())));
  writer.add_text("tokenizer.json", contents_of(run + "/tokenizer.json"));
  writer.add_tensors("model.safetensors", tensors_of(weights));
  writer.commit();
}

// A server of one model, "m", and whatever options say.
class ServerTest : public ::testing::Test {
 protected:
  ServerTest() { options_.http.port = 0; }

  void start(const Weights& weights = small_weights()) {
    options_.models.paths.push_back(write_model(folder_ / "m", weights));
    start_without_model();
  }
  void start_without_model() {
    server_ = std::make_unique<Server>(options_, Exec{.threads = 2});
    ASSERT_TRUE(soon([&] { return !server_->models().loading(); }, 60));
  }
  Client client() const { return Client(server_->port()); }
  Reply get(const std::string& target) { return client().get(target); }
  Reply post(const std::string& target, const Json& body) { return client().post(target, body); }
  bool all_free() {
    return soon([&] {
      const auto load = server_->load();
      return load.live == 0 && load.waiting == 0 && load.queued == 0 && load.slicing == 0;
    });
  }

  TestFolder folder_;
  ServeOptions options_;
  std::unique_ptr<Server> server_;
};

}  // namespace ddl
