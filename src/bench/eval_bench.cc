#include "bench/eval_bench.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>

#include "bench/measure.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/profiler.h"
#include "core/record.h"
#include "core/rng.h"
#include "data/tokenizer.h"
#include "eval/run_tasks.h"
#include "eval/scorer.h"
#include "model/engine.h"
#include "model/residual/registry.h"

namespace ddl {
namespace {

std::vector<std::int32_t> random_tokens(Index n, Index vocab, std::uint64_t seed) {
  const Random random(seed, "tokens");
  std::vector<std::int32_t> tokens;
  for (Index i = 0; i < n; ++i)
    tokens.push_back(static_cast<std::int32_t>(
        random.below(static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(vocab))));
  return tokens;
}

// Contexts that all begin with the same two tokens, 12 and more of their own (28 in the mean), and four
// choices of one and more tokens (5 in the mean).
std::vector<ScoreRequest> draw_questions(Index count, Index vocab) {
  const Random random(1, "questions");
  const auto length = [&](Index least, double mean, Index draw) {
    const double u = random.uniform(static_cast<std::uint64_t>(draw));
    return least + static_cast<Index>(-(mean - static_cast<double>(least)) * std::log(1 - u) + 0.5);
  };
  std::vector<ScoreRequest> requests;
  for (Index q = 0; q < count; ++q) {
    std::vector<std::int32_t> context = {24361, 25};
    for (std::int32_t& token : context) token = static_cast<std::int32_t>(token % vocab);
    const auto seed = static_cast<std::uint64_t>(8 * q);
    for (const std::int32_t token : random_tokens(std::min<Index>(120, length(12, 26, 8 * q)), vocab, seed))
      context.push_back(token);
    for (Index choice = 1; choice <= 4; ++choice)
      requests.push_back({context, random_tokens(std::min<Index>(40, length(1, 5, 8 * q + choice)), vocab,
                                                 seed + static_cast<std::uint64_t>(choice))});
  }
  return requests;
}

// The requests of a real task: the scorer that run_tasks() is given here only writes them down.
std::vector<ScoreRequest> read_questions(const EvalBenchOptions& options, const Exec& ex) {
  if (options.data.empty() || options.tokenizer.empty())
    throw UserError("--task {} needs --data DIR and --tokenizer PATH", options.task);
  EvalRequest request;
  request.tasks = find_tasks({options.task}, {});
  request.data = options.data;
  request.shots = options.shots;
  request.limit = options.questions;
  std::vector<ScoreRequest> requests;
  const auto write_down = [&](std::span<const ScoreRequest> asked, Scorer::Scored scored) {
    requests.assign(asked.begin(), asked.end());
    for (Index i = 0; i < std::ssize(asked); ++i) scored(i, {});
  };
  run_tasks(request, *load_tokenizer(options.tokenizer), write_down, ex);
  return requests;
}

class EvalBench {
 public:
  EvalBench(const EvalBenchOptions& options, const Exec& ex) : options_(options), ex_(ex) {}

  void run() {
    ModelConfig config = preset(options_.preset);
    config.set("model.precision=" + options_.precision);
    for (const std::string& name : options_.residuals) find_rule(name);
    if (options_.rounds < 1 || options_.questions < options_.rounds)
      throw UserError("--questions: expected at least as many as rounds, {}; found {}", options_.rounds,
                      options_.questions);
    requests_ = options_.task.empty() ? draw_questions(options_.questions, config.vocab)
                                      : read_questions(options_, ex_);
    prompt_ = random_tokens(std::min(options_.prompt, config.context), config.vocab, 1);
    if (!options_.json)
      fmt::print(
          "{}, {}, {} thread{}: {} requests ({}) in {} parts, a prompt of {} tokens before and after each.\n"
          "{:<12} {:>8} {:>8} {:>8} | {:>8} | {:>6}\n{:<12} {:>8} {:>8} {:>8} | {:>8} | {:>6}\n",
          options_.preset, config.uses_bf16() ? "bf16" : "f32", ex_.threads, ex_.threads == 1 ? "" : "s",
          requests_.size(),
          options_.task.empty() ? "drawn" : fmt::format("{}, {} shots", options_.task, options_.shots),
          options_.rounds, prompt_.size(), "", "distinct", "", "scoring", "prompt", "share", "residual",
          "tokens", "logits", "tok/s", "tok/s", "");
    for (const std::string& name : options_.residuals) {
      config.use_residual(name);
      measure(config);
    }
  }

 private:
  void measure(const ModelConfig& config) {
    const Weights weights(config, 1, ex_);
    const auto decoder = make_decoder(weights, {.slots = 1, .chunk = std::ssize(prompt_)}, ex_);
    ScorerOptions scorer_options;
    if (options_.batch_tokens > 0) scorer_options.batch_tokens = options_.batch_tokens;
    Profiler profiler;
    Exec ex = ex_;
    if (options_.profile) ex.profiler = &profiler;
    Scorer scorer(weights, scorer_options, ex);
    const auto prefill_s = [&] {
      decoder->reset(0);
      const Decoder::Append whole{0, prompt_};
      const double start = now();
      decoder->append({&whole, 1}, ex_);
      return now() - start;
    };
    prefill_s();
    std::vector<double> prompts = {prefill_s()}, shares;
    for (Index round = 0; round < options_.rounds; ++round) {
      const auto at = [&](Index r) {
        return static_cast<std::size_t>(std::ssize(requests_) * r / options_.rounds);
      };
      const Scorer::Cost before = scorer.cost();
      scorer.score_all(std::span(requests_).subspan(at(round), at(round + 1) - at(round)));
      const Scorer::Cost& after = scorer.cost();
      prompts.push_back(prefill_s());
      const double rate =
          static_cast<double>(after.tokens - before.tokens) / (after.seconds - before.seconds);
      const double around = (prompts[prompts.size() - 2] + prompts.back()) / 2;
      shares.push_back(rate / (static_cast<double>(prompt_.size()) / around));
    }
    const Scorer::Cost& cost = scorer.cost();
    Json record = make_record("eval_speed");
    record["preset"] = options_.preset;
    record["residual"] = config.residual();
    record["precision"] = config.uses_bf16() ? "bf16" : "f32";
    record["task"] = options_.task.empty() ? Json(nullptr) : Json(options_.task);
    record["shots"] = options_.shots;
    record["requests"] = cost.requests;
    record["distinct_tokens"] = cost.tokens;
    record["logits"] = cost.logits;
    record["tokens_per_s"] = static_cast<double>(cost.tokens) / cost.seconds;
    record["prompt_tokens_per_s"] = static_cast<double>(prompt_.size()) / median(prompts);
    record["share_of_prompt_rate"] = median(shares);
    if (options_.json)
      std::puts(to_line(record).c_str());
    else
      fmt::print("{:<12} {:>8} {:>8} {:>8.0f} | {:>8.0f} | {:>5.0f}%\n", config.residual(), cost.tokens,
                 cost.logits, record["tokens_per_s"].get<double>(),
                 record["prompt_tokens_per_s"].get<double>(), 100 * median(shares));
    for (const auto& [name, entry] : profiler.entries())
      fmt::print("    {:<12} {:>9.2f} ms in {} calls\n", name, entry.seconds * 1e3, entry.calls);
    std::fflush(stdout);
  }

  EvalBenchOptions options_;
  Exec ex_;
  std::vector<ScoreRequest> requests_;
  std::vector<std::int32_t> prompt_;
};

}  // namespace

void run_eval_bench(const EvalBenchOptions& options, const Exec& ex) { EvalBench(options, ex).run(); }

}  // namespace ddl
