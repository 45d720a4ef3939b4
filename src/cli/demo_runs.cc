#include "cli/demo_runs.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <numbers>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/error.h"
#include "core/record.h"
#include "core/text_chart.h"
#include "data/bpe_train.h"
#include "data/dataset.h"
#include "data/generated_corpus.h"
#include "data/prepare.h"
#include "infer/generation.h"
#include "infer/load.h"
#include "io/file.h"
#include "model/engine.h"
#include "report/page.h"
#include "report/run_records.h"
#include "report/runs_document.h"
#include "train/checkpoint_saver.h"
#include "train/console.h"
#include "train/identity.h"
#include "train/run_config.h"
#include "train/run_folder.h"
#include "train/signals.h"
#include "train/trainer.h"

namespace ddl {
namespace {

constexpr Index kStories = 12000;    // more than two minutes of training get through
constexpr Index kVocabulary = 512;   // the stories use a few hundred words
constexpr Index kFewestSteps = 4;    // however short the time
constexpr double kPeakRate = 0.016;  // suits both models at this size
const char* const kRules[] = {kBaselineRule, "ddl-cc"};

void say(const std::string& line) {
  std::puts(line.c_str());
  std::fflush(stdout);
}

// Of the time that there is for training, `part` has passed: a short rise, then a cosine to nothing.
double rate_at(double part) {
  constexpr double kRise = 0.05;
  if (part < kRise) return kPeakRate * std::max(0.02, part / kRise);
  return 0.5 * kPeakRate * (1 + std::cos(std::numbers::pi * std::min(1.0, (part - kRise) / (1 - kRise))));
}

std::vector<std::string> settings(const std::string& rule, std::uint64_t seed) {
  return {"model.residual=" + rule,
          "model.layers=4",  // small enough for a thousand steps in two minutes
          "model.width=64",
          "model.heads=4",
          "model.context=256",
          "train.batch=8",
          "train.steps=1000000",  // the clock ends it
          fmt::format("train.seed={}", seed),
          "train.schedule=constant",  // what the rate does is rate_at's
          "train.warmup=0",
          fmt::format("train.lr={}", kPeakRate),
          "eval.every=0",
          "eval.windows=64",
          "log.gates_every=0",
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

// One of the two models while it learns: a run like any other, but for its rate, which follows the clock.
class Learner {
 public:
  Learner(const char* rule, const DemoOptions& options, const Dataset& data, const Exec& ex)
      : rule_(rule), ex_(ex), folder_(options.out + "/" + rule, RunFolder::Purpose::kNew) {
    config_ = load_run_config(
        {.preset = "tiny", .stored_toml = "", .file = "", .sets = settings(rule, options.seed)});
    config_.train.data_folder = std::filesystem::absolute(data.folder()).lexically_normal().string();
    resolve_with_data(config_, data, ex);
    trainer_ = std::make_unique<Trainer>(config_, data, ex);
    identity_ = run_identity(data);
    saver_ = std::make_unique<CheckpointSaver>(folder_.checkpoints(), *trainer_,
                                               fixed_files(config_.model, data), identity_);
    write_file_atomic(folder_.identity(), to_text(identity_));
    write_file_atomic(folder_.config(), config_.to_toml());
    metrics_ = std::make_unique<RecordWriter>(folder_.metrics());
    Json record = make_record("start");
    record["step"] = 0, record["config"] = config_.to_json(), record["data"] = identity_["data"];
    record["rate_by_clock"] = true;  // no command repeats this run
    metrics_->write(record);
  }

  void step(double lr) {
    config_.train.lr = lr;  // the trainer reads it
    const Json record = trainer_->step();
    metrics_->write(record);
    const double loss = record["loss"];
    losses_.push_back(loss);
    seconds_ += record["step_s"].get<double>();
    constexpr double kMemory = 0.9;
    smooth_ = losses_.size() == 1 ? loss : kMemory * smooth_ + (1 - kMemory) * loss;
    curve_.points.emplace_back(static_cast<double>(losses_.size()), smooth_);
  }

  void validate() {
    validation_ = trainer_->validate();
    if (!validation_.is_null()) metrics_->write(validation_);
  }

  // The end of the run: configuration as it was, last checkpoint, last records.
  void finish(int signal) {
    config_.train.steps = std::max<Index>(1, trainer_->progress().step);
    config_.train.lr = kPeakRate;
    gates_ = losses_.empty() ? Json(nullptr) : trainer_->gates();
    if (!gates_.is_null()) metrics_->write(gates_);
    if (signal == 0) validate();
    saver_->save(CheckpointSaver::Prune::kYes, ex_);
    saver_->wait();
    write_file_atomic(folder_.config(), config_.to_toml());
    Json record = make_record(signal ? "stopped" : "done");
    record["step"] = trainer_->progress().step;
    if (signal) record["signal"] = signal;
    metrics_->write(record);
  }

  const char* rule() const { return rule_; }
  const std::string& path() const { return folder_.path(); }
  const std::vector<double>& losses() const { return losses_; }
  double seconds() const { return seconds_; }
  double number(const char* key) const { return validation_.value(key, 0.0); }  // of the last validation
  const Json& gates() const { return gates_; }
  // Without the first twentieth of the steps: it begins at the loss of guessing, which presses the rest into a line.
  ChartSeries curve(char mark) const {
    const auto& points = curve_.points;
    return {rule_, mark, {points.begin() + std::ssize(points) / 20, points.end()}};
  }
  // The smoothed loss after this part of the steps, and the first step at which it was as low as `loss`; 0: never.
  double smooth_at(double part) const {
    const auto step = static_cast<std::size_t>(part * static_cast<double>(curve_.points.size() - 1));
    return curve_.points[step].second;
  }
  Index first_step_below(double loss) const {
    for (const auto& [step, smooth] : curve_.points)
      if (smooth <= loss) return static_cast<Index>(step);
    return 0;
  }

 private:
  const char* rule_;
  const Exec ex_;
  RunFolder folder_;
  RunConfig config_;
  Json identity_, validation_, gates_;
  std::unique_ptr<Trainer> trainer_;
  std::unique_ptr<CheckpointSaver> saver_;
  std::unique_ptr<RecordWriter> metrics_;
  std::vector<double> losses_;
  double smooth_ = 0, seconds_ = 0;
  ChartSeries curve_;
};

// Both curves, redrawn in place on a terminal; elsewhere a line now and then.
class LiveChart {
 public:
  void show(const Learner& a, const Learner& b, double seconds, double total) {
    constexpr double kLive = 0.5, kPlain = 10;
    if (now() - shown_at_ < (terminal_ ? kLive : kPlain)) return;
    shown_at_ = now();
    const std::string status =
        fmt::format("{:.0f} of {:.0f} s, step {}, loss: {} {:.4f}, {} {:.4f}", seconds, total,
                    a.losses().size(), a.rule(), a.losses().back(), b.rule(), b.losses().back());
    if (!terminal_) return say(status);
    erase();
    const std::string text = chart(a, b) + status + "\n";
    lines_ = std::count(text.begin(), text.end(), '\n');
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
  }
  void erase() {
    if (lines_ > 0) fmt::print("\033[{}A\033[J", lines_);
    lines_ = 0;
  }
  static std::string chart(const Learner& a, const Learner& b) {
    return text_chart({a.curve('b'), b.curve('d')}, {.columns = 60, .rows = 10});
  }

 private:
  const bool terminal_ = ::isatty(STDOUT_FILENO) != 0;
  double shown_at_ = -1e9;
  std::ptrdiff_t lines_ = 0;
};

// Who learned faster at first: how many steps each took to where the slower one was after a tenth of them.
std::string head_start(const Learner& a, const Learner& b) {
  if (a.losses().size() < 40) return "";
  const double loss = std::max(a.smooth_at(0.1), b.smooth_at(0.1));
  return fmt::format("To come below a training loss of {:.2f}, {} took {} steps and {} took {}.\n", loss,
                     a.rule(), a.first_step_below(loss), b.rule(), b.first_step_below(loss));
}

// What can be said of two curves: the losses of the last batches, which both saw, in pairs.
std::string difference(const Learner& a, const Learner& b) {
  const std::size_t count = a.losses().size(), last = std::max<std::size_t>(2, count / 4);
  if (count < 8) return "Too few steps to compare anything.";
  double sum = 0, squares = 0;
  for (std::size_t i = count - last; i < count; ++i) {
    const double d = b.losses()[i] - a.losses()[i];
    sum += d, squares += d * d;
  }
  const double n = static_cast<double>(last), mean = sum / n;
  const double error = std::sqrt(std::max(0.0, squares / n - mean * mean) / (n - 1));
  const std::string slower = fmt::format("A step of {} took {:.2f} times as long as one of {}.", b.rule(),
                                         b.seconds() / a.seconds(), a.rule());
  if (std::abs(mean) < 2 * error)
    return fmt::format(
        "On the last {} batches their losses differ by {:+.4f} ±{:.4f} (standard error over batches, not "
        "over seeds):\nno difference that this demo can show. {}",
        last, mean, error, slower);
  return fmt::format(
      "On the last {} batches, the same for both, the loss of {} was {} by {:.4f} ±{:.4f} "
      "(standard error over batches, not over seeds).\n"
      "One seed, at the very beginning of learning: another seed, or more steps, may change the sign.\n{}",
      last, b.rule(), mean < 0 ? "lower" : "higher", std::abs(mean), error, slower);
}

// A row of 20 characters, darker where more gates are, and three shares: below 0.7 the write is mostly
// skipped, around 1 the readout is matched to its target, above 1.3 the correction overshoots on purpose.
void print_gates(const Json& record) {
  say("What the gates of ddl-cc do (0 skips the write, 1 matches the target, 2 overshoots fully):");
  say("  sublayer      0 ......gate...... 2   mean    skip   match    over");
  constexpr std::string_view kShades = " .:-=+*#%@";
  Index s = 0;
  for (const Json& sublayer : record["sublayers"]) {
    const Json& gate = sublayer["series"]["gate"];
    std::string bar;
    double share[3] = {0, 0, 0};
    const Json& histogram = gate["histogram"];
    for (std::size_t bin = 0; bin < histogram.size(); ++bin) {
      const double part = histogram[bin];
      share[bin < 7 ? 0 : bin < 13 ? 1 : 2] += part;
      bar += kShades[std::min<std::size_t>(9, static_cast<std::size_t>(std::ceil(part * 12)))];
    }
    say(fmt::format("  {:<2} {:<10} |{}| {:>6.2f} {:>6.0f}% {:>6.0f}% {:>6.0f}%", s++,
                    sublayer["kind"].get<std::string>(), bar, gate["mean"].get<double>(), 100 * share[0],
                    100 * share[1], 100 * share[2]));
  }
}

void print_story(const Learner& learner, const Exec& ex) {
  const LoadedModel loaded = load_model(learner.path(), {}, ex);
  const auto decoder = make_decoder(loaded.weights, {}, ex);
  GenerateOptions options;
  options.max_new_tokens = 120;
  options.sampling.temperature = 0.7;
  options.sampling.seed = 7;
  const auto ignore_text = [](Index, std::string_view) {};
  const auto ignore_notice = [](const std::string&) {};
  const auto texts = generate(*decoder, *loaded.tokenizer, "", 1, options, {ignore_text, ignore_notice}, ex);
  say(fmt::format("\nA story by {}:\n\n{}", learner.rule(), texts.front().text));
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
  const StopSignals signals;
  Learner baseline(kRules[0], options, dataset, ex), delta(kRules[1], options, dataset, ex);
  const double training = now(), budget = options.minutes * 60 - (training - start);
  say(fmt::format("Training baseline and ddl-cc in turns, on the same batches, for the rest of {} ...",
                  format_duration(options.minutes * 60)));
  LiveChart chart;
  for (Index steps = 0; signals.received() == 0; ++steps) {
    // The end takes a few steps' time for validation, and a moment for checkpoints and stories.
    const double spent = now() - training, pair = steps > 0 ? spent / static_cast<double>(steps) : 0;
    const double train_s = std::max(0.0, budget - std::min(4 * pair + 3, 0.5 * budget));
    if (spent >= train_s && steps >= kFewestSteps) break;
    const double rate = rate_at(train_s > 0 ? spent / train_s : 1);
    baseline.step(rate);
    delta.step(rate);
    chart.show(baseline, delta, spent, train_s);
  }
  chart.erase();
  const int signal = signals.received();
  for (Learner* learner : {&baseline, &delta}) learner->finish(signal);
  if (signal) {
    say(fmt::format("stopped; what was trained so far is in {} and {}", baseline.path(), delta.path()));
    return signal;
  }
  say("\nTraining loss by step, smoothed, after the first twentieth:\n" + LiveChart::chart(baseline, delta));
  say("Same data, same batches, same number of steps:");
  say("  residual    validation loss    steps   time per step");
  for (const Learner* learner : {&baseline, &delta}) {
    const double steps = static_cast<double>(learner->losses().size());
    say(fmt::format("  {:<11} {:>15.4f} {:>8.0f} {:>12.0f} ms", learner->rule(), learner->number("loss"),
                    steps, 1000 * learner->seconds() / steps));
  }
  say(head_start(baseline, delta) + difference(baseline, delta));
  say("(A demonstration, not a comparison: that is in docs/results/.)\n");
  if (delta.gates().contains("sublayers")) print_gates(delta.gates());
  print_story(baseline, ex);
  print_story(delta, ex);
  const std::string page = options.out + "/report.html";
  write_file_atomic(page, report_page(runs_document(read_all_runs({baseline.path(), delta.path()}),
                                                    "baseline and ddl-cc on generated stories")
                                          .json()));
  say(
      fmt::format("\nBoth runs as a page, to open in a browser: {1}\n"
                  "\nNext:\n"
                  "  ./ddl generate {0}/ddl-cc --prompt \"One day,\" --temperature 0.7\n"
                  "  ./ddl tokenizer train my.txt --vocab 4096 --out tokenizer\n"
                  "  ./ddl data prepare my.txt --tokenizer tokenizer --out data/mine\n"
                  "  ./ddl train --data data/mine --out runs/mine",
                  options.out, page));
  return 0;
}

}  // namespace ddl
