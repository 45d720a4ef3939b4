#include "bench/step_bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <vector>

#include "bench/measure.h"
#include "core/json.h"
#include "core/profiler.h"
#include "core/record.h"
#include "core/rng.h"
#include "kernels/isa.h"
#include "model/engine.h"
#include "model/plan.h"
#include "model/residual/registry.h"

namespace ddl {
namespace {

// A model with its optimizer state and a batch, that takes training steps as the trainer does.
class Stepper {
 public:
  Stepper(const ModelConfig& config, BatchShape shape, const Exec& ex)
      : ex_(ex),
        model_(make_trainable(config, shape, {}, 1, ex)),
        token_(static_cast<std::size_t>(shape.N())),
        target_(token_.size()) {
    ex_.profiler = &profiler_;
    const Random random(1, "bench step");
    const auto draw = [&](std::size_t i) {
      return static_cast<std::int32_t>(random.below(i, static_cast<std::uint64_t>(config.vocab)));
    };
    for (std::size_t n = 0; n < token_.size(); ++n) token_[n] = draw(n), target_[n] = draw(n + token_.size());
    step();  // touches all memory for the first time
  }

  double step() {  // seconds
    profiler_.clear();
    const auto start = std::chrono::steady_clock::now();
    model_->loss_and_grad({token_.data(), target_.data()}, 1, ex_);
    model_->update(kLearningRate, ex_);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  double floor() const { return model_->measure_floor(ex_); }
  std::size_t bytes() const { return total_bytes(model_->memory()); }
  const std::map<std::string, Profiler::Entry>& profile() const { return profiler_.entries(); }

 private:
  static constexpr double kLearningRate = 1e-3;
  Profiler profiler_;
  Exec ex_;
  std::unique_ptr<TrainableModel> model_;
  std::vector<std::int32_t> token_, target_;
};

void print_profile(const std::map<std::string, Profiler::Entry>& profile) {
  std::vector<std::pair<double, std::string>> rows;
  double accounted = 0;
  for (const auto& [name, entry] : profile)
    rows.emplace_back(entry.seconds, name), accounted += entry.seconds;
  std::sort(rows.rbegin(), rows.rend());
  for (const auto& [seconds, name] : rows)
    fmt::print("    {:<26} {:>9.1f} ms {:>5.1f}%\n", name, seconds * 1e3, 100 * seconds / accounted);
}

}  // namespace

void run_step_bench(const StepBenchOptions& options, const Exec& ex) {
  ModelConfig config = preset(options.preset);
  config.set("model.precision=" + options.precision);
  if (options.context > 0) config.context = options.context;
  const BatchShape shape{options.batch, config.context};
  const bool all = options.residuals == std::vector<std::string>{"all"};
  const std::vector<std::string> names = all ? rule_names() : options.residuals;
  for (const std::string& name : names) find_rule(name);  // before anything is measured

  if (!options.json)
    fmt::print(
        "{}, {} threads, {}. Preset {}, {} x {} tokens per step.\n"
        "{:<12} {:>9} {:>9} {:>9} {:>7} {:>16} {:>9} {:>16}\n",
        current_isa(), ex.threads, config.precision_text(), options.preset, shape.B, shape.T, "residual",
        "tokens/s", "median", "floor", "share", "speed (paper)", "memory", "memory (paper)");
  // The baseline runs in turns with each rule, so that both sides of a ratio are measured together.
  config.use_residual(kBaselineRule);
  Stepper baseline(config, shape, ex);
  for (const std::string& name : names) {
    config.use_residual(name);
    std::unique_ptr<Stepper> own;
    if (name != kBaselineRule) own = std::make_unique<Stepper>(config, shape, ex);
    Stepper& stepper = own ? *own : baseline;
    std::vector<double> seconds, floors, ratios;
    for (Index i = 0; i < options.steps; ++i) {
      floors.push_back(stepper.floor());
      const bool first = i % 2 == 0;  // which of the two comes first alternates
      double base = own && first ? baseline.step() : 0;
      seconds.push_back(stepper.step());
      if (own && !first) base = baseline.step();
      ratios.push_back(own ? base / seconds.back() : 1);
    }
    const double N = static_cast<double>(shape.N());
    const double speed = N / *std::min_element(seconds.begin(), seconds.end());
    const double floor = N / *std::min_element(floors.begin(), floors.end());
    const double ratio = median(ratios);
    const double memory_ratio = static_cast<double>(stepper.bytes()) / static_cast<double>(baseline.bytes());
    const auto& paper = find_rule(name).paper;
    if (options.json) {
      const ModelPlan plan = plan_model(config, shape);
      Json j = make_record("bench_step");
      j["preset"] = options.preset, j["residual"] = name, j["precision"] = config.numbers();
      j["batch"] = shape.B, j["context"] = shape.T, j["threads"] = ex.threads, j["isa"] = current_isa();
      j["tokens_per_s"] = speed, j["median_tokens_per_s"] = N / median(seconds),
      j["floor_tokens_per_s"] = floor;
      j["share_of_floor"] = speed / floor, j["speed_ratio"] = ratio;
      j["bytes"] = stepper.bytes(), j["memory_ratio"] = memory_ratio;
      j["flops_per_token"] = plan.forward.total() + plan.backward.total();
      if (paper) j["paper_speed_ratio"] = paper->train_speed, j["paper_memory_ratio"] = paper->peak_memory;
      if (options.profile)
        for (const auto& [part, entry] : stepper.profile()) j["profile_s"][part] = entry.seconds;
      std::puts(to_line(j).c_str());
    } else {
      const auto with_paper = [&](double ours, double theirs) {
        return paper ? fmt::format("{:.2f} ({:.2f})", ours, theirs) : fmt::format("{:.2f} (-)", ours);
      };
      fmt::print("{:<12} {:>9.1f} {:>9.1f} {:>9.1f} {:>6.0f}% {:>16} {:>9} {:>16}\n", name, speed,
                 N / median(seconds), floor, 100 * speed / floor,
                 with_paper(ratio, paper ? paper->train_speed : 0), format_bytes(stepper.bytes()),
                 with_paper(memory_ratio, paper ? paper->peak_memory : 0));
      if (options.profile) print_profile(stepper.profile());
    }
    std::fflush(stdout);
  }
}

}  // namespace ddl
