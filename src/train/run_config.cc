#include "train/run_config.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <optional>
#include <string_view>

#include "core/error.h"
#include "core/json.h"
#include "data/dataset.h"
#include "io/file.h"
#include "model/residual/registry.h"

namespace ddl {
namespace {

constexpr Index kVocabMultiple = 64;
constexpr double kMany = 1e12;

}  // namespace

void TrainConfig::describe(Options& o) {
  o.add("train.steps", steps, "updates of the whole run").range(1, kMany);
  o.add("train.batch", batch, "sequences per micro-batch").range(1, kMaxBatch);
  o.add("train.accumulate", accumulate, "micro-batches whose gradients make one update").range(1, kMaxBatch);
  o.add("train.context", context, "tokens per sequence; 0 means model.context").range(0, kMaxContext);
  o.add("train.seed", seed, "of starting values and data order").range(0, 9e18);
  o.add("train.lr", lr, "peak learning rate").range(0, 1e6);
  o.add("train.min_lr", min_lr, "where cosine and cool-down end").range(0, 1e6);
  o.add("train.warmup", warmup, "steps over which the rate rises from 0").range(0, kMany);
  o.add("train.warmup_start", warmup_start, "the first update has 1/warmup of the peak rate, or zero");
  o.add("train.schedule", schedule, "after the warm-up; cooldown: constant, then a straight line down");
  o.add("train.cooldown", cooldown, "the part of the steps that a cool-down takes, at the end")
      .range(0.001, 1);
  o.add("train.patience", patience, "end after so many validations without a new best; 0 means never")
      .range(0, 1e9);
  optimizer.describe(o);
  o.add("train.zero", zero,
        "with several ranks, each keeps the optimizer's state of its part of the tensors (ZeRO-1)");
  o.add("data.folder", data_folder, "the dataset");
  o.add("data.order", data_order, "windows shuffled each epoch, at random positions, or as they come");
  o.add("eval.every", eval_every, "steps between validations; 0 means only at the end").range(0, kMany);
  o.add("eval.windows", eval_windows, "sequences of the fixed validation set").range(1, 1e9);
  o.add("checkpoint.every_steps", save_every_steps, "0 means off").range(0, kMany);
  o.add("checkpoint.every_minutes", save_every_minutes, "0 means off").range(0, 1e9);
  o.add("checkpoint.keep_last", keep_last, "newest checkpoints to keep").range(1, 1e9);
  o.add("checkpoint.keep_best", keep_best, "of lowest validation loss to keep; a new best is saved at once")
      .range(0, 1e9);
  o.add("checkpoint.background", background, "write while training continues, from a copy in memory");
  o.add("log.every", log_every, "steps between records in metrics.jsonl").range(1, kMany);
  o.add("log.screen_seconds", screen_seconds, "between lines without a terminal").range(0, 1e9);
  o.add("log.floor", floor, "measure the GEMM floor of a step at the start");
  o.add("log.gates_every", gates_every,
        "steps between statistics of gates and other series of the rule; 0 means off")
      .range(0, kMany);
  o.add("log.sample_every", sample_every, "steps between samples of text; 0 means off").range(0, kMany);
  o.add("log.sample_prompt", sample_prompt, "what a sample continues; empty: the beginning of a document");
  o.add("log.tensorboard", tensorboard, "also write event files of TensorBoard, in RUN/tensorboard");
}

Options RunConfig::options() {
  Options o;
  o.add("preset", preset, "sizes to start from").choices(preset_names());
  model.describe(o);
  train.describe(o);
  return o;
}

std::string RunConfig::to_toml() const {
  RunConfig stored(*this);
  stored.train.data_folder = escape_path(train.data_folder);
  return stored.options().to_toml();
}
Json RunConfig::to_json() const { return RunConfig(*this).options().to_json(); }

RunConfig load_run_config(const ConfigSources& sources) {
  const std::string file_text = sources.file.empty() ? "" : read_file(sources.file);
  // What the sources say of a choice on which sizes or the list of options depend, the last of them;
  // `fallback` where they say nothing, or nothing valid, which the loading below then refuses.
  const auto chosen = [&](const char* key, const std::vector<std::string>& valid, std::string fallback) {
    std::optional<std::string> said = Options::peek(sources.stored_toml, key);
    if (auto in_file = Options::peek(file_text, key)) said = in_file;
    for (const std::string& assignment : sources.sets)
      if (auto set = Options::peek_assignment(assignment, key)) said = set;
    return said && std::find(valid.begin(), valid.end(), *said) != valid.end() ? *said : fallback;
  };
  RunConfig config;
  const std::string preset_name =
      sources.preset.empty() ? chosen("preset", preset_names(), config.preset) : sources.preset;
  config.model = preset(preset_name);
  config.model.vocab = 0;  // the data's, whatever the preset
  config.model.use_residual(chosen("model.residual", rule_names(), config.model.residual()));
  config.train.optimizer.choose(chosen("train.optimizer", optimizer_names(), config.train.optimizer.name));

  Options options = config.options();
  // A stored configuration may have been overruled in a choice; the options that came with it go with it.
  if (!sources.stored_toml.empty())
    options.load_text(sources.stored_toml, "the run's config.toml", Options::Refused::kSkip);
  if (!file_text.empty()) options.load_text(file_text, sources.file);
  for (const std::string& assignment : sources.sets) options.set(assignment);
  config.preset = preset_name;
  config.train.data_folder = unescape_path(config.train.data_folder);
  return config;
}

namespace {

constexpr std::string_view kEscaped = "escaped:";

bool is_utf8(const std::string& text) { return parse_json(to_line(Json(text))) == Json(text); }

}  // namespace

std::string escape_path(const std::string& path) {
  if (is_utf8(path)) return path;
  std::string text(kEscaped);
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x80 || c == '%')
      text += fmt::format("%{:02X}", byte);
    else
      text += c;
  }
  return text;
}

std::string unescape_path(const std::string& text) {
  if (!text.starts_with(kEscaped)) return text;
  std::string path;
  for (std::size_t i = kEscaped.size(); i < text.size(); ++i) {
    unsigned byte = static_cast<unsigned char>(text[i]);
    if (text[i] == '%') {
      const char* const end = text.data() + std::min(i + 3, text.size());
      const auto [stop, error] = std::from_chars(text.data() + i + 1, end, byte, 16);
      if (error != std::errc() || stop != text.data() + i + 3)
        throw UserError("data.folder is '{}', expected two hexadecimal digits after each %", text);
      i += 2;
    }
    path += static_cast<char>(byte);
  }
  return path;
}

void resolve_with_data(RunConfig& config, const Dataset& data, const Exec& ex) {
  if (config.model.vocab == 0)
    config.model.vocab =
        round_up(data.vocab_size() > 0 ? data.vocab_size() : preset("small").vocab, kVocabMultiple);
  config.model.embedding_std = config.model.embedding_start_std();
  if (data.vocab_size() > config.model.vocab)
    throw UserError(
        "model.vocab is {}, but {} has a vocabulary of {}; leave model.vocab out to take the data's",
        config.model.vocab, data.folder(), data.vocab_size());
  if (data.vocab_size() == 0) data.check_vocab(config.model.vocab, ex);
  if (config.context() > config.model.context)
    throw UserError("train.context is {}, longer than model.context {}", config.train.context,
                    config.model.context);
  if (config.train.min_lr > config.train.lr)
    throw UserError("train.min_lr {} is above train.lr {}", config.train.min_lr, config.train.lr);
  if (config.train.patience > 0 && config.train.eval_every == 0)
    throw UserError(
        "train.patience counts validations, but eval.every is 0; set eval.every, for example 100");
  config.model.check();
}

std::string config_screen(const RunConfig& config) {
  RunConfig copy = config;
  const Options options = copy.options();
  constexpr std::size_t kColumns = 2, kColumnWidth = 33;  // with the names, 80 in all
  std::string text, group;
  std::vector<std::string> cells, wide;  // what does not fit into a column has a line of its own
  const auto add_line = [&](std::string cells_of_line) {
    const std::string line = fmt::format("  {:<11}{}", group, cells_of_line);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    group.clear();  // the name stands in the first line only
  };
  const auto flush = [&] {
    for (const std::string& cell : wide) add_line(cell);
    const std::size_t rows = (cells.size() + kColumns - 1) / kColumns;
    for (std::size_t row = 0; row < rows; ++row) {
      std::string line;
      for (std::size_t at = row; at < cells.size(); at += rows)
        line += fmt::format("{:<{}}", cells[at], kColumnWidth);
      add_line(line);
    }
    cells.clear();
    wide.clear();
  };
  std::string current;
  for (const auto& option : options.list()) {
    const std::size_t dot = option.key().find('.');
    const std::string name = option.key().substr(0, std::min(dot, option.key().size()));
    if (name != current) flush(), group = current = name;
    const std::string cell = dot == std::string::npos
                                 ? option.value()
                                 : fmt::format("{:<17} {}", option.key().substr(dot + 1), option.value());
    (cell.size() < kColumnWidth ? cells : wide).push_back(cell);
  }
  flush();
  return text;
}

}  // namespace ddl
