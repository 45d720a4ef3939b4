#include "bench/decode_bench.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>

#include "bench/measure.h"
#include "core/clock.h"
#include "core/profiler.h"
#include "core/rng.h"
#include "infer/decoder.h"

namespace ddl {
namespace {

constexpr Index kPast = 64;   // tokens each sequence has when its steps are timed
constexpr Index kSteps = 12;  // timed one by one; the best counts

// A model under test with its best times so far.
struct Subject {
  ModelConfig config;
  ModelPlan plan;
  std::unique_ptr<Model> model;
  std::unique_ptr<Decoder> decoder;
  double prefill_s = 1e30;
  std::map<Index, double> step_s;  // by batch

  Subject(const ModelConfig& c, const DecodeBenchOptions& o, Index prompt, const Exec& ex) : config(c) {
    plan = plan_model(config, {1, prompt}, Model::Mode::kInfer);
    model = make_model(config, {1, 1}, Model::Mode::kInfer, 1, ex);
    const Index slots = *std::max_element(o.batches.begin(), o.batches.end());
    decoder = make_decoder(*model, {.slots = slots, .chunk = prompt}, ex);
  }

  void measure(const DecodeBenchOptions& o, const std::vector<std::int32_t>& prompt, const Exec& ex) {
    decoder->reset(0);
    const Decoder::Append whole{0, prompt};
    double start = now();
    decoder->append({&whole, 1}, ex);
    prefill_s = std::min(prefill_s, now() - start);
    for (const Index batch : o.batches) {
      std::vector<Decoder::Append> pasts, tokens;
      for (Index i = 0; i < batch; ++i) {
        decoder->reset(i);
        pasts.push_back({i, std::span(prompt).first(kPast)});
        tokens.push_back({i, std::span(prompt).subspan(static_cast<std::size_t>(i % kPast), 1)});
      }
      decoder->append(pasts, ex);
      double& best = step_s.try_emplace(batch, 1e30).first->second;
      for (Index step = 0; step < kSteps; ++step) {
        start = now();
        decoder->append(tokens, ex);
        best = std::min(best, now() - start);
      }
    }
  }

  // What a step must read: every weight once, each sequence's keys, values and history.
  double step_bytes(Index batch) const {
    const double weight = config.uses_bf16() ? 2 : 4;
    const double past = static_cast<double>(kPast) + static_cast<double>(kSteps) / 2;
    return static_cast<double>(plan.table.parameter_count()) * weight +
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
    ModelConfig config = preset(options_.preset);
    config.precision = options_.precision;
    std::vector<std::string> names = options_.residuals;
    if (names == std::vector<std::string>{"all"}) names = residual_names();
    for (const std::string& name : names) find_residual(name);
    if (options_.batches.empty() || *std::min_element(options_.batches.begin(), options_.batches.end()) < 1)
      throw UserError("--batch: expected whole numbers from 1, as in 1,8");
    const Index prompt = std::min(options_.prompt, config.context);
    if (prompt < kPast)
      throw UserError("--prompt: expected {} tokens or more, found {}", kPast, options_.prompt);
    const Random random(1, "prompt");
    for (Index i = 0; i < prompt; ++i)
      prompt_.push_back(static_cast<std::int32_t>(
          random.below(static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(config.vocab))));

    limits_ = measure_limits(ex_);
    print_limits(limits_, ex_, options_.json);
    if (!options_.json) print_head(config);
    config.residual = "baseline";
    Subject baseline(config, options_, std::ssize(prompt_), ex_);
    for (const std::string& name : names) {
      if (name == "baseline") {
        for (Index round = 0; round < options_.rounds; ++round) {
          baseline.measure(options_, prompt_, ex_);
          raise_limits();
        }
        report(baseline, baseline);
        continue;
      }
      config.residual = name;
      Subject subject(config, options_, std::ssize(prompt_), ex_);
      // In turns, so that both see the same machine; only these rounds make the ratio.
      baseline.prefill_s = 1e30, baseline.step_s.clear();
      for (Index round = 0; round < options_.rounds; ++round) {
        baseline.measure(options_, prompt_, ex_);
        subject.measure(options_, prompt_, ex_);
        raise_limits();
      }
      report(subject, baseline);
      if (options_.profile) profile(subject);
    }
    if (!options_.json) print_limits(limits_, ex_, false);
  }

 private:
  // The machine may have been busy when the run began: limits are the best seen so far.
  void raise_limits() {
    const MachineLimits again = measure_limits(ex_);
    limits_.f32_gflops = std::max(limits_.f32_gflops, again.f32_gflops);
    limits_.bf16_gflops = std::max(limits_.bf16_gflops, again.bf16_gflops);
    limits_.stream_gbps = std::max(limits_.stream_gbps, again.stream_gbps);
    limits_.read_gbps = std::max(limits_.read_gbps, again.read_gbps);
  }

  void print_head(const ModelConfig& config) const {
    fmt::print(
        "\n{}, {}: a prompt of {} tokens; single tokens after {}. Best of {} rounds; ratios to the baseline "
        "measured in turns.\n{:<12} {:>8} {:>7} {:>6}",
        options_.preset, config.uses_bf16() ? "bf16" : "f32", std::ssize(prompt_), kPast, options_.rounds, "",
        "prompt", "GEMM", "");
    for (const Index batch : options_.batches)
      fmt::print(" | {:>8} {:>7} {:>6}", fmt::format("batch {}", batch), "memory", "");
    fmt::print(" | {:>5}\n{:<12} {:>8} {:>7} {:>6}", "paper", "residual", "tok/s", "floor", "ratio");
    for (std::size_t i = 0; i < options_.batches.size(); ++i)
      fmt::print(" | {:>8} {:>7} {:>6}", "tok/s", "bound", "ratio");
    fmt::print(" | {:>5}\n", "ratio");
  }

  void report(const Subject& s, const Subject& baseline) const {
    const Index prompt = std::ssize(prompt_);
    const double gflops =
        s.config.uses_bf16() && limits_.bf16_gflops > 0 ? limits_.bf16_gflops : limits_.f32_gflops;
    const double floor_share = s.prompt_flops(prompt) / (gflops * 1e9) / s.prefill_s;
    const double bandwidth = std::max(limits_.read_gbps, limits_.stream_gbps) * 1e9;
    const auto& paper = find_residual(s.config.residual).paper;
    Json record = make_record("decode");
    record["preset"] = options_.preset;
    record["residual"] = s.config.residual;
    record["precision"] = s.config.uses_bf16() ? "bf16" : "f32";
    record["prompt_tokens"] = prompt;
    record["prefill_tokens_per_s"] = static_cast<double>(prompt) / s.prefill_s;
    record["prefill_share_of_gemm_floor"] = floor_share;
    record["prefill_ratio"] = baseline.prefill_s / s.prefill_s;
    std::string line = fmt::format("{:<12} {:>8.0f} {:>6.0f}% {:>6.3f}", s.config.residual,
                                   static_cast<double>(prompt) / s.prefill_s, 100 * floor_share,
                                   baseline.prefill_s / s.prefill_s);
    for (const Index batch : options_.batches) {
      const double seconds = s.step_s.at(batch), share = s.step_bytes(batch) / bandwidth / seconds;
      const double ratio = baseline.step_s.at(batch) / seconds, rate = static_cast<double>(batch) / seconds;
      record["steps"].push_back({{"batch", batch},
                                 {"tokens_per_s", rate},
                                 {"bytes_per_step", s.step_bytes(batch)},
                                 {"share_of_bandwidth", share},
                                 {"ratio", ratio}});
      line += fmt::format(" | {:>8.1f} {:>6.0f}% {:>6.3f}", rate, 100 * share, ratio);
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
    s.measure(options_, prompt_, ex);
    for (const auto& [name, entry] : profiler.entries())
      fmt::print("    {:<12} {:>9.2f} ms in {} calls\n", name, entry.seconds * 1e3, entry.calls);
  }

  DecodeBenchOptions options_;
  Exec ex_;
  MachineLimits limits_{};
  std::vector<std::int32_t> prompt_;
};

}  // namespace

void run_decode_bench(const DecodeBenchOptions& options, const Exec& ex) { DecodeBench(options, ex).run(); }

}  // namespace ddl
