#include "bench/decode_bench.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <span>

#include "bench/measure.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/json.h"
#include "core/machine.h"
#include "core/profiler.h"
#include "core/record.h"
#include "core/rng.h"
#include "model/engine.h"
#include "model/plan.h"
#include "model/residual/registry.h"

namespace ddl {
namespace {

constexpr Index kPast = 64;   // tokens each sequence has when its steps are timed
constexpr Index kSteps = 12;  // timed one by one; the best counts

// A model under test with its best times so far. Prompts and steps have decoders of their own, so that the
// caches take no more memory than they need.
struct Subject {
  ModelConfig config;
  ModelPlan plan;
  std::unique_ptr<Weights> weights;
  std::unique_ptr<Decoder> prompts, steps;
  double prefill_s = 1e30, read_gbps = 0;
  std::map<Index, double> step_s;  // by batch

  Subject(const ModelConfig& c, WeightFormat format, Index prompt, Index slots, const Exec& ex) : config(c) {
    weights = std::make_unique<Weights>(config, 1, ex);
    if (format != WeightFormat::kF32) *weights = to_format(*weights, format, ex);
    plan = plan_model(weights->config(), {1, prompt});
    prompts = make_decoder(*weights, {.slots = 1, .chunk = prompt, .context = prompt}, ex);
    steps = make_decoder(*weights, {.slots = slots, .chunk = kPast, .context = kPast + kSteps}, ex);
  }

  void measure(const std::vector<Index>& batches, const std::vector<std::int32_t>& prompt, const Exec& ex) {
    prompts->reset(0);
    const Decoder::Append whole{0, prompt}, past{0, std::span(prompt).first(kPast)};
    double start = now();
    prompts->append({&whole, 1}, ex);
    prefill_s = std::min(prefill_s, now() - start);
    for (const Index batch : batches) {
      steps->reset(0);
      steps->append({&past, 1}, ex);
      std::vector<Decoder::Append> tokens;
      for (Index i = 0; i < batch; ++i) {
        steps->copy(i, 0);
        tokens.push_back({i, std::span(prompt).subspan(static_cast<std::size_t>(i % kPast), 1)});
      }
      double& best = step_s.try_emplace(batch, 1e30).first->second;
      for (Index step = 0; step < kSteps; ++step) {
        start = now();
        steps->append(tokens, ex);
        best = std::min(best, now() - start);
      }
    }
    for (int i = 0; i < 3; ++i) read_gbps = std::max(read_gbps, ddl::read_gbps(weight_bytes(), ex));
  }

  // The memory that a step reads: the same bytes in the same pages.
  std::span<const std::byte> weight_bytes() const {
    if (weights->packed()) return weights->packed()->bytes();
    if (!weights->copy()) return std::as_bytes(weights->values());
    return std::as_bytes(std::span(weights->copy(), weights->values().size()));
  }

  // What a step must read: every weight once, each sequence's keys, values and history.
  double step_bytes(Index batch) const {
    const double past = static_cast<double>(kPast) + static_cast<double>(kSteps) / 2;
    const double rest =  // what stays f32 when matrices are packed
        weights->packed() ? static_cast<double>(std::as_bytes(weights->values()).size()) : 0;
    return static_cast<double>(weight_bytes().size()) + rest +
           static_cast<double>(batch) * (past * static_cast<double>(plan.cache_bytes_per_token) +
                                         static_cast<double>(plan.cache_bytes_per_sequence));
  }
  // The prompt's matrix products; of the head only the last token's.
  double prompt_flops(Index prompt) const {
    return static_cast<double>(prompt) * (plan.forward.linear + plan.forward.attention) + plan.forward.head;
  }
};

class DecodeBench {
 public:
  DecodeBench(const DecodeBenchOptions& options, const Exec& ex) : options_(options), ex_(ex) {}

  void run() {
    prepare();
    limits_ = measure_limits(ex_);
    // In turns, each round beginning with another, so that all see the same machine; the best of each counts.
    const std::size_t count = subjects_.size();
    for (Index round = 0; round < options_.rounds; ++round) {
      for (std::size_t i = 0; i < count; ++i) {
        Subject& s = *subjects_[(i + static_cast<std::size_t>(round)) % count];
        s.measure(options_.batches, prompt_, ex_);
        limits_.read_gbps = std::max(limits_.read_gbps, s.read_gbps);
      }
      double& gflops = in_bf16_peak() ? limits_.bf16_gflops : limits_.f32_gflops;
      gflops = std::max(gflops, gemm_gflops(in_bf16_peak(), ex_));
    }
    print_limits(limits_, ex_, options_.json);
    if (!options_.json) print_head();
    for (const auto& subject : subjects_) {
      if (subject->config.residual() == kBaselineRule && !wanted_baseline_) continue;
      report(*subject, baseline(subject->weights->format()));
      if (options_.profile) profile(*subject);
    }
  }

 private:
  // Makes all models; the baseline comes first, wanted or not.
  void prepare() {
    ModelConfig config = preset(options_.preset);
    config.set("model.precision=" + options_.precision);
    std::vector<std::string> names = options_.residuals;
    if (names == std::vector<std::string>{"all"}) names = rule_names();
    for (const std::string& name : names) find_rule(name);
    std::vector<std::string> formats = options_.weights;
    if (formats == std::vector<std::string>{"all"}) formats = weight_format_names();
    for (const std::string& format : formats) parse_weight_format(format);
    const Index slots = *std::max_element(options_.batches.begin(), options_.batches.end());
    const Index prompt = std::min(options_.prompt, config.context);
    if (prompt < kPast + kSteps)
      throw UserError("--prompt: expected {} tokens or more, found {}", kPast + kSteps, prompt);
    const Random random(1, "prompt");
    for (Index i = 0; i < prompt; ++i)
      prompt_.push_back(static_cast<std::int32_t>(
          random.below(static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(config.vocab))));
    wanted_baseline_ = std::erase(names, kBaselineRule) > 0;
    names.insert(names.begin(), kBaselineRule);
    const Index models = std::ssize(names) * std::ssize(formats);
    check_memory(config, models, prompt, slots);
    if (!options_.json)
      fmt::print(stderr, "Measuring {} models side by side, {} rounds ...\n", models, options_.rounds);
    for (const std::string& name : names)
      for (const std::string& format : formats) {
        config.use_residual(name);
        subjects_.push_back(
            std::make_unique<Subject>(config, parse_weight_format(format), prompt, slots, ex_));
      }
  }

  // In the same format: what the rule costs, not what the format gives.
  const Subject& baseline(WeightFormat format) const {
    for (const auto& s : subjects_)
      if (s->config.residual() == kBaselineRule && s->weights->format() == format) return *s;
    DDL_CHECK(false, "no baseline with {} weights", info(format).name);
  }

  // The fastest that these bytes were read: part of small weights may stay in the cache between two steps.
  double read_gbps(WeightFormat format) const {
    double best = 0;
    for (const auto& s : subjects_)
      if (s->weights->format() == format) best = std::max(best, s->read_gbps);
    return best;
  }

  static void check_memory(const ModelConfig& config, Index models, Index prompt, Index slots) {
    const ModelPlan plan = plan_model(config, {1, 1});
    const Index cached = prompt + slots * (kPast + kSteps);
    const std::size_t bytes =
        static_cast<std::size_t>(models) *
        (plan.total_bytes + static_cast<std::size_t>(cached * plan.cache_bytes_per_token));
    const std::size_t machine = machine_memory_bytes();
    if (bytes > machine / 10 * 9)
      throw UserError("{} models side by side need {}, the machine has {}; name fewer (--residual)", models,
                      format_bytes(bytes), format_bytes(machine));
  }

  bool in_bf16_peak() const { return subjects_.front()->config.uses_bf16() && limits_.bf16_gflops > 0; }

  void print_head() const {
    fmt::print(
        "\n{}, {}: a prompt of {} tokens, compared with the GEMM rate; single tokens after {}, compared with "
        "reading the "
        "weights alone. Best of {} rounds.\n{:<12} {:<7} {:>8} {:>7} {:>6}",
        options_.preset, subjects_.front()->config.uses_bf16() ? "bf16" : "f32", std::ssize(prompt_), kPast,
        options_.rounds, "", "", "prompt", "GEMM", "");
    for (const Index batch : options_.batches)
      fmt::print(" | {:>8} {:>7} {:>7} {:>6}", fmt::format("batch {}", batch), "MB read", "memory", "");
    fmt::print(" | {:>5}\n{:<12} {:<7} {:>8} {:>7} {:>6}", "paper", "residual", "weights", "tok/s", "floor",
               "ratio");
    for (std::size_t i = 0; i < options_.batches.size(); ++i)
      fmt::print(" | {:>8} {:>7} {:>7} {:>6}", "tok/s", "per tok", "bound", "ratio");
    fmt::print(" | {:>5}\n", "ratio");
  }

  void report(const Subject& s, const Subject& baseline) const {
    const Index prompt = std::ssize(prompt_);
    const double gflops = in_bf16_peak() ? limits_.bf16_gflops : limits_.f32_gflops;
    const double floor_share = s.prompt_flops(prompt) / (gflops * 1e9) / s.prefill_s;
    const double bandwidth = read_gbps(s.weights->format()) * 1e9;
    const auto& paper = find_rule(s.config.residual()).paper;
    Json record = make_record("decode");
    record["preset"] = options_.preset;
    record["residual"] = s.config.residual();
    record["precision"] = s.weights->config().uses_bf16() ? "bf16" : "f32";
    record["weights"] = info(s.weights->format()).name;
    record["prompt_tokens"] = prompt;
    record["prefill_tokens_per_s"] = static_cast<double>(prompt) / s.prefill_s;
    record["prefill_share_of_gemm_floor"] = floor_share;
    record["prefill_ratio"] = baseline.prefill_s / s.prefill_s;
    std::string line = fmt::format("{:<12} {:<7} {:>8.0f} {:>6.0f}% {:>6.3f}", s.config.residual(),
                                   info(s.weights->format()).name, static_cast<double>(prompt) / s.prefill_s,
                                   100 * floor_share, baseline.prefill_s / s.prefill_s);
    record["read_gbps"] = s.read_gbps;  // of this model's own weights
    for (const Index batch : options_.batches) {
      const double seconds = s.step_s.at(batch), share = s.step_bytes(batch) / bandwidth / seconds;
      const double ratio = baseline.step_s.at(batch) / seconds, rate = static_cast<double>(batch) / seconds;
      record["steps"].push_back({{"batch", batch},
                                 {"tokens_per_s", rate},
                                 {"bytes_per_step", s.step_bytes(batch)},
                                 {"share_of_bandwidth", share},
                                 {"ratio", ratio}});
      line += fmt::format(" | {:>8.1f} {:>7.1f} {:>6.0f}% {:>6.3f}", rate,
                          s.step_bytes(batch) / static_cast<double>(batch) / 1e6, 100 * share, ratio);
    }
    record["paper_ratio"] = paper ? Json(paper->inference_speed) : Json(nullptr);
    line += fmt::format(" | {:>5}", paper ? fmt::format("{:.2f}", paper->inference_speed) : "");
    std::puts(options_.json ? to_line(record).c_str() : line.c_str());
    std::fflush(stdout);
  }

  void profile(Subject& s) const {
    Profiler profiler;
    Exec ex = ex_;
    ex.profiler = &profiler;
    s.measure(options_.batches, prompt_, ex);
    for (const auto& [name, entry] : profiler.entries())
      fmt::print("    {:<12} {:>9.2f} ms in {} calls\n", name, entry.seconds * 1e3, entry.calls);
  }

  DecodeBenchOptions options_;
  const Exec ex_;
  MachineLimits limits_{};
  std::vector<std::int32_t> prompt_;
  std::vector<std::unique_ptr<Subject>> subjects_;  // the baseline first
  bool wanted_baseline_ = false;
};

}  // namespace

void run_decode_bench(const DecodeBenchOptions& options, const Exec& ex) { DecodeBench(options, ex).run(); }

}  // namespace ddl
