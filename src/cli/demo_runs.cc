#include "cli/demo_runs.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "core/clock.h"
#include "core/record.h"
#include "data/bpe_train.h"
#include "data/dataset.h"
#include "data/generate.h"
#include "data/prepare.h"
#include "infer/generate.h"
#include "infer/load.h"
#include "model/engine.h"
#include "train/config.h"
#include "train/run.h"
#include "train/trainer.h"

namespace ddl {
namespace {

constexpr Index kStories = 12000;   // more than two minutes of training get through
constexpr Index kVocabulary = 512;  // the stories use a few hundred words
constexpr Index kFewestSteps = 4;   // however short the time
const char* const kRules[] = {"baseline", "ddl-cc"};

void say(const std::string& line) {
  std::puts(line.c_str());
  std::fflush(stdout);
}

std::vector<std::string> settings(const std::string& rule, Index steps, std::uint64_t seed) {
  return {"model.residual=" + rule,
          "model.context=256",
          "train.batch=8",
          fmt::format("train.steps={}", steps),
          fmt::format("train.seed={}", seed),
          fmt::format("train.warmup={}", std::max<Index>(1, steps / 20)),
          "train.lr=0.004",
          "eval.every=0",  // only at the end: what is shown
          "eval.windows=128",
          fmt::format("log.gates_every={}", steps),
          "checkpoint.every_steps=0",
          "checkpoint.keep_last=1",
          "log.floor=false"};
}

// Stories, a tokenizer trained on them, token shards. Returns the dataset's folder.
std::string make_data(const DemoOptions& options, const Exec& ex) {
  const std::string stories = options.out + "/stories.jsonl", data = options.out + "/data";
  write_generated(stories, kStories, ex, [&](Index i) { return generate_story(options.seed, i); });
  WordCounter words(ex);
  for (Index i = 0; i < kStories; i += 4)
    words.add(generate_story(options.seed, i).text);  // a quarter is plenty
  const BpeTokenizer tokenizer(train_bpe(words, kVocabulary));
  PrepareOptions prepare;
  prepare.inputs = {stories};
  prepare.out = data;
  prepare.seed = options.seed;
  prepare.force = true;
  prepare_dataset(prepare, tokenizer, ex);
  return data;
}

// How long a step takes here: a few steps of the slower rule, the first left out.
double seconds_per_step(const Dataset& data, std::uint64_t seed, const Exec& ex) {
  RunConfig config = load_run_config(
      {.preset = "tiny", .stored_toml = "", .file = "", .sets = settings(kRules[1], kFewestSteps, seed)});
  resolve_with_data(config, data, ex);
  Trainer trainer(config, data, ex);
  trainer.step();
  const double start = now();
  for (int i = 0; i < 4; ++i) trainer.step();
  return (now() - start) / 4;
}

struct Result {
  double loss = 0, exact_answers = 0, seconds = 0;
  Json gates;
};

// The last validation and gate records of a run.
Result read_result(const std::string& run) {
  Result result;
  std::ifstream in(run + "/metrics.jsonl");
  for (std::string line; std::getline(in, line);) {
    const Json record = parse_json(line);
    if (record["event"] == "validation") {
      result.loss = record["loss"];
      result.exact_answers = record.value("exact_answers", 0.0);
    }
    if (record["event"] == "gates") result.gates = record;
    if (record["event"] == "step") result.seconds = record.value("elapsed_s", 0.0);
  }
  return result;
}

// A row of 20 characters, darker where more gates are, and three shares: below 0.7 the write is mostly
// skipped, around 1 the readout is matched to its target, above 1.3 the correction overshoots on purpose.
void print_gates(const Json& record) {
  say("What the gates of ddl-cc do (0 skips the write, 1 matches the target, 2 overshoots fully):");
  say("  sublayer      0 ......gate...... 2   mean    skip   match    over");
  constexpr std::string_view kShades = " .:-=+*#%@";
  Index s = 0;
  for (const Json& gate : record["sublayers"]) {
    std::string bar;
    double share[3] = {0, 0, 0};
    const Json& histogram = gate["histogram"];
    for (std::size_t bin = 0; bin < histogram.size(); ++bin) {
      const double part = histogram[bin];
      share[bin < 7 ? 0 : bin < 13 ? 1 : 2] += part;
      bar += kShades[std::min<std::size_t>(9, static_cast<std::size_t>(std::ceil(part * 12)))];
    }
    say(fmt::format("  {:<2} {:<10} |{}| {:>6.2f} {:>6.0f}% {:>6.0f}% {:>6.0f}%", s++,
                    gate["kind"].get<std::string>(), bar, gate["mean_gate"].get<double>(), 100 * share[0],
                    100 * share[1], 100 * share[2]));
  }
}

void print_sample(const std::string& run, const Exec& ex) {
  const LoadedModel loaded = load_model(run, {}, ex);
  const auto decoder = make_decoder(loaded.weights, {}, ex);
  GenerateOptions options;
  options.max_new_tokens = 220;
  options.sampling.temperature = 0.7;
  options.sampling.seed = 7;
  const auto ignore_text = [](Index, std::string_view) {};
  const auto ignore_notice = [](const std::string&) {};
  const auto texts = generate(*decoder, *loaded.tokenizer, "", 1, options, {ignore_text, ignore_notice}, ex);
  say("A story by ddl-cc:\n");
  say(texts.front().text);
}

}  // namespace

int run_demo(const DemoOptions& asked, const Exec& ex) {
  namespace fs = std::filesystem;
  DemoOptions options = asked;
  if (options.out.empty()) {
    options.out = "demo";
    for (int i = 2; fs::exists(options.out); ++i) options.out = fmt::format("demo-{}", i);
  }
  if (!(options.minutes > 0 && options.minutes <= 1440))
    throw UserError("--minutes is {}, expected more than 0 and at most 1440", options.minutes);
  for (const char* rule : kRules)
    if (fs::exists(options.out + "/" + rule))
      throw UserError("{}/{} is there already; remove it, or choose another folder with --out", options.out,
                      rule);
  std::error_code error;
  fs::create_directories(options.out, error);
  if (error) throw UserError("{}: cannot be created ({})", options.out, error.message());

  const double start = now();
  const std::string data = make_data(options, ex);
  const Dataset dataset = Dataset::open(data, ex);
  say(fmt::format("{} stories, {} tokens, a vocabulary of {} ({:.0f} s)", kStories, dataset.train().tokens(),
                  kVocabulary, now() - start));
  const double step_s = seconds_per_step(dataset, options.seed, ex);
  const double left_s = options.minutes * 60 - (now() - start) - 5;
  const Index steps = std::max(kFewestSteps, static_cast<Index>(left_s / 2 / (step_s * 1.1)));
  const StopSignals signals;
  Result results[2];
  for (int i = 0; i < 2; ++i) {
    const std::string run = options.out + "/" + kRules[i];
    say(fmt::format("Training {} for {} steps of 2048 tokens, about {:.0f} s ...", kRules[i], steps,
                    static_cast<double>(steps) * step_s * 1.1));
    RunRequest request;
    request.preset = "tiny";
    request.data = data;
    request.out = run;
    request.sets = settings(kRules[i], steps, options.seed);
    request.style = ::isatty(STDOUT_FILENO) ? Console::Style::kLineOnly : Console::Style::kSilent;
    const RunOutcome outcome = run_training(request, signals, ex);
    if (outcome.signal) {
      say(fmt::format("stopped; what was trained so far is in {}", run));
      return outcome.signal;
    }
    results[i] = read_result(run);
  }
  say("\nSame data, same batches, same number of steps:");
  say("  residual    validation loss   answers right   training time");
  for (int i = 0; i < 2; ++i)
    say(fmt::format("  {:<11} {:>15.4f} {:>14.1f}% {:>13.0f} s", kRules[i], results[i].loss,
                    100 * results[i].exact_answers, results[i].seconds));
  say("  (one seed and two minutes: a demonstration, not a comparison; see docs/results/)\n");
  if (results[1].gates.contains("sublayers")) print_gates(results[1].gates);
  say("");
  print_sample(options.out + "/ddl-cc", ex);
  say(
      fmt::format("\nNext:\n"
                  "  ./ddl generate {0}/ddl-cc --prompt \"One day,\" --temperature 0.7\n"
                  "  ./ddl tokenizer train my.txt --vocab 4096 --out tokenizer\n"
                  "  ./ddl data prepare my.txt --tokenizer tokenizer --out data/mine\n"
                  "  ./ddl train --data data/mine --out runs/mine",
                  options.out));
  return 0;
}

}  // namespace ddl
