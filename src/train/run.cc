#include "train/run.h"

#include <algorithm>
#include <ctime>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>

#include "core/clock.h"
#include "core/error.h"
#include "core/json_fields.h"
#include "data/progress_line.h"
#include "io/checkpoint_folder.h"
#include "io/file.h"
#include "model/instruction_set.h"
#include "model/plan.h"
#include "model/stored_model.h"
#include "train/checkpoint_saver.h"
#include "train/handshake.h"
#include "train/identity.h"
#include "train/run_config.h"
#include "train/run_folder.h"
#include "train/schedule.h"
#include "train/tensorboard.h"
#include "train/trainer.h"

namespace ddl {
namespace {

namespace fs = std::filesystem;

bool names_a_preset(const RunRequest& request) {
  return !request.preset.empty() ||
         std::any_of(request.sets.begin(), request.sets.end(),
                     [](const std::string& set) { return set.starts_with("preset="); });
}

std::string model_toml(ModelConfig config) {
  Options options;
  config.describe(options);
  return options.to_toml();
}

// The weights fit one architecture. Free is what says how far to look, how to compute, or where weights
// start.
void check_same_model(const StoredModel& start, ModelConfig asked) {
  static const std::set<std::string> kFree = {
      "model.context",           "model.engine",           "model.precision",       "model.recompute",
      "model.store_state",       "model.beta_init",        "model.embedding_std",   "model.hidden_std_factor",
      "model.output_std_factor", "model.compressor_start", "model.value_bias_start"};
  ModelConfig stored = start.config();
  stored.mlp = stored.mlp_width(), asked.mlp = asked.mlp_width();
  Options is, wanted;
  stored.describe(is);
  asked.describe(wanted);
  std::string refused;
  for (const OptionChange& change : option_changes(is, wanted))
    if (!kFree.contains(change.key))
      refused +=
          fmt::format("\n  {}: {} in the model, {} asked for", change.key, change.before, change.after);
  if (!refused.empty())
    throw UserError("--from {}: a model cannot change its shape:{}\nLeave these out.", start.folder(),
                    refused);
}

std::string clock_time() {
  const std::time_t time = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&time, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

// Everything of a run that outlives its steps.
class Run {
 public:
  Run(const RunRequest& request, const StopSignals& signals, const Exec& ex)
      : request_(request), signals_(signals), ex_(ex), comm_(request.comm ? *request.comm : alone()) {
    open();
  }
  RunOutcome train();

 private:
  void open();
  void prepare(const std::string& out);
  void join(const std::string& out);
  void settle_with_ranks(const std::exception_ptr& failed);
  void load_config(const std::string& stored_toml);
  void open_resumed(const std::string& out);
  void open_branch(const std::string& out);
  void begin();
  void begin_with(const StoredModel& start);
  void emit(const Json& record);
  void message(const std::string& event, const std::string& text);
  void poll_saver();
  void save();
  bool save_due() const;
  void settle_what_next();
  // A signal that came to this process or, with several ranks, to one of them.
  int stop_signal() const { return comm_.alone() ? signals_.received() : next_.signal; }
  bool steps_left() const { return trainer_->progress().step < config_.train.steps; }
  void stop_on_non_finite();
  void write_sample();
  bool out_of_patience() const {
    const Index patience = config_.train.patience;
    return patience > 0 && trainer_->progress().validations_since_best >= patience;
  }
  void say_next();
  std::string workload(double floor) const;
  template <class Body>
  auto saving_on_error(Body&& body);
  void expect_folder() const;

  const RunRequest& request_;
  const StopSignals& signals_;
  const Exec ex_;
  Comm& comm_;
  std::string out_;  // the run's folder
  RunConfig config_;
  std::vector<OptionChange> changes_;
  std::optional<RunFolder> folder_;
  std::optional<StoredModel> start_;  // weights to begin with
  std::optional<Dataset> data_;
  Json identity_;
  std::optional<CheckpointEntry> checkpoint_;  // to resume from
  std::vector<std::string> rejected_;          // why newer checkpoints were not accepted
  std::vector<std::string> set_aside_;         // where they are now
  std::unique_ptr<Trainer> trainer_;
  std::unique_ptr<CheckpointSaver> saver_;
  std::unique_ptr<RecordWriter> metrics_;
  std::unique_ptr<TensorboardWriter> tensorboard_;  // null: not wanted
  std::unique_ptr<Console> console_;
  Index saved_step_ = -1, validated_step_ = -1;
  double saved_at_ = 0;
  struct {
    int signal = 0;
    bool save = false;
  } next_;                                // what all ranks do after this step
  std::unique_ptr<Tokenizer> tokenizer_;  // for samples
  double sample_seconds_ = 0;
};

void Run::load_config(const std::string& stored_toml) {
  // A model to start from is, like a run's stored configuration, what a file and --set are applied to.
  ConfigSources sources{request_.preset, start_ ? model_toml(start_->config()) : stored_toml,
                        request_.config_file, request_.sets};
  config_ = load_run_config(sources);
  if (!request_.data.empty()) config_.train.data_folder = request_.data;
  if (config_.train.data_folder.empty())
    throw UserError(
        "which data? Give --data DIR, a dataset made by `ddl data prepare`, or data.folder in the "
        "configuration");
  config_.train.data_folder = fs::absolute(config_.train.data_folder).lexically_normal().string();
  data_.emplace(Dataset::open(config_.train.data_folder, ex_));
  if (start_) check_same_tokens(*start_, *data_);
  resolve_with_data(config_, *data_, ex_);
  check_ranks(config_, comm_.ranks());
  if (start_) check_same_model(*start_, config_.model);
  identity_ = run_identity(*data_);
  if (start_) identity_["started_from"] = fs::absolute(start_->folder()).lexically_normal().string();
}

// Whatever is wrong with a file of the run's own is damage.
template <class Read>
auto reading_the_run(Read&& read) {
  try {
    return read();
  } catch (const UserError& error) {
    throw DamagedRunError("{}", error.what());
  }
}

void Run::open_resumed(const std::string& out) {
  folder_.emplace(out, RunFolder::Purpose::kResume);
  const std::string stored_toml = reading_the_run([&] { return read_file(folder_->config()); });
  const RunConfig stored = reading_the_run([&] { return load_run_config({"", stored_toml, "", {}}); });
  load_config(stored_toml);
  changes_ = allowed_changes(stored, config_);
  const Json began = reading_the_run([&] {
    Json json = parse_json(read_file(folder_->identity()));
    const JsonFields fields(json, folder_->identity());
    if (fields.has("started_from")) identity_["started_from"] = fields.text("started_from");
    return json;
  });
  check_identity(began, identity_, out);
  remove_unfinished_checkpoints(folder_->checkpoints());
  checkpoint_ = latest_valid_checkpoint(folder_->checkpoints(), &rejected_);
  const bool from_a_model = began.contains("started_from");
  if (!checkpoint_ && !rejected_.empty())
    throw DamagedRunError(
        "{}: no checkpoint is whole:\n  {}\nPut back the files from a copy. Or give the run up: {}", out,
        fmt::join(rejected_, "\n  "),
        from_a_model
            ? "begin a new one, --from the model it began with"
            : fmt::format("with {} removed, --resume begins again from step 0", folder_->checkpoints()));
  if (!checkpoint_ && from_a_model)
    throw DamagedRunError(
        "{}: began with the weights of {}, and no checkpoint is left; begin a new run --from there", out,
        began["started_from"].get<std::string>());
}

// A new run that shares the first steps of another: from its newest checkpoint that neither run has begun to cool
// down from. Everything a step does follows from configuration, data and its number, so the branch is, bit for bit, the
// run that would have begun at step 0.
void Run::open_branch(const std::string& out) {
  const std::string &trunk = request_.branch, trunk_config = trunk + "/config.toml";
  if (!fs::exists(trunk_config)) throw UserError("--branch {}: there is no run (no config.toml)", trunk);
  const std::string stored_toml = read_file(trunk_config);
  const RunConfig stored = load_run_config({"", stored_toml, "", {}});
  load_config(stored_toml);
  for (const OptionChange& change : allowed_changes(stored, config_)) {
    const auto in = [&](const char* group) { return change.key.starts_with(group); };
    if (change.key != "train.steps" && change.key != "data.folder" && !in("eval.") && !in("log.") &&
        !in("checkpoint."))
      throw UserError(
          "--branch {}: a branch repeats the steps of the other run, so {} stays {} (found {}); what may "
          "change is "
          "train.steps, eval.*, log.* and checkpoint.*",
          trunk, change.key, change.before, change.after);
    changes_.push_back(change);
  }
  const Json began = parse_json(read_file(trunk + "/run.json"));
  check_identity(began, identity_, trunk);
  if (began.contains("started_from")) identity_["started_from"] = began["started_from"];
  const Index last = std::min(cooldown_start(stored.train), cooldown_start(config_.train));
  if (last < 0)
    throw UserError(
        "--branch {}: both runs need train.schedule = cooldown, so that they share their steps up to the "
        "cool-down; "
        "found {} there and {} here",
        trunk, stored.train.schedule, config_.train.schedule);
  std::optional<CheckpointEntry> from;
  for (const CheckpointEntry& entry : list_checkpoints(trunk + "/checkpoints"))
    if (entry.step <= last) from = entry;
  if (!from)
    throw UserError(
        "--branch {}: it has no checkpoint of step {} or before, where both runs are still the same", trunk,
        last);
  reading_the_run([&] { verify_checkpoint(from->folder); });
  folder_.emplace(out, RunFolder::Purpose::kNew);
  // Into place under its own name: a process that is killed here leaves no half of a checkpoint.
  make_folders(folder_->checkpoints());
  const std::string copy = fmt::format("{}/{}", folder_->checkpoints(), checkpoint_name(from->step));
  const std::string unfinished = copy + ".copy";
  remove_all(unfinished), remove_all(copy);
  std::error_code error;
  fs::copy(from->folder, unfinished, fs::copy_options::recursive, error);
  if (!error)
    fs::copy_file(trunk + "/metrics.jsonl", folder_->metrics(), fs::copy_options::overwrite_existing, error);
  if (error) throw UserError("{}: cannot copy the checkpoint {} ({})", out, from->folder, error.message());
  rename_path(unfinished, copy);
  checkpoint_ = CheckpointEntry{from->step, copy};
  identity_["branched_from"] =
      Json{{"run", fs::absolute(trunk).lexically_normal().string()}, {"step", from->step}};
}

// What rank 0 does before the ranks meet: folder, configuration, data, and the checkpoint to begin with.
void Run::prepare(const std::string& out) {
  if (!request_.from.empty() + !request_.branch.empty() + request_.resume > 1)
    throw UserError("--from and --branch start a new run, --resume continues an old one: give one of them");
  if (request_.resume) {
    open_resumed(out);
  } else if (!request_.branch.empty()) {
    open_branch(out);
  } else {
    if (!request_.from.empty()) {
      if (names_a_preset(request_))
        throw UserError("--from takes the sizes from the model in {}: leave the preset out", request_.from);
      start_.emplace(request_.from);
      if (start_->format() != WeightFormat::kF32)
        throw UserError(
            "--from {}: its weights are {}, made for inference (ddl quantize): a step of training changes a "
            "weight by less than such a number can hold; begin from the model it was made of",
            request_.from, info(start_->format()).name);
    }
    load_config("");
    folder_.emplace(out, RunFolder::Purpose::kNew);
  }
}

// What the other ranks do: they read the same configuration and data, and touch no file of the run.
void Run::join(const std::string& out) {
  std::string stored_toml;
  if (request_.resume || !request_.branch.empty())
    stored_toml = read_file((request_.resume ? out : request_.branch) + "/config.toml");
  if (!request_.from.empty()) start_.emplace(request_.from);
  load_config(stored_toml);
}

// All ranks begin, with the same checkpoint, or none.
void Run::settle_with_ranks(const std::exception_ptr& failed) {
  Json mine;
  if (!failed) {
    mine["version"] = request_.version;
    mine["config"] = config_.to_json();
    mine["config"]["data"].erase("folder");  // a machine may have it elsewhere
    mine["data"] = identity_["data"];
    mine["data"].erase("folder");
    mine["tokenizer_sha256"] = identity_["tokenizer_sha256"];
  }
  agree_to_begin(comm_, mine, failed);
  if (comm_.alone()) return;
  Json from;
  if (checkpoint_) from = Json{{"step", checkpoint_->step}, {"folder", checkpoint_->folder}};
  from = parse_json(comm_.broadcast_text(to_line(from)));
  if (!from.is_null())
    checkpoint_ = CheckpointEntry{from["step"].get<Index>(), from["folder"].get<std::string>()};
}

void Run::open() {
  out_ = out_folder(request_);
  std::exception_ptr failed;
  try {
    if (comm_.leads())
      prepare(out_);
    else
      join(out_);
  } catch (const UserError&) {
    failed = std::current_exception();
  }
  settle_with_ranks(failed);
  if (!comm_.leads()) {
    trainer_ = std::make_unique<Trainer>(config_, *data_, ex_, comm_);
    if (checkpoint_) reading_the_run([&] { load_checkpoint(checkpoint_->folder, *trainer_); });
    if (checkpoint_) saved_step_ = checkpoint_->step;
    if (start_) begin_with(*start_);
    check_same_weights(comm_, trainer_->model().weights().values());
    if (config_.train.floor) trainer_->measure_floor();
    return;
  }
  console_ = std::make_unique<Console>(request_.style, config_.train.screen_seconds, config_.train.steps,
                                       folder_->metrics());
  trainer_ = std::make_unique<Trainer>(config_, *data_, ex_, comm_);
  saver_ = std::make_unique<CheckpointSaver>(folder_->checkpoints(), *trainer_,
                                             fixed_files(config_.model, *data_), identity_);
  if (checkpoint_) {
    reading_the_run([&] { load_checkpoint(checkpoint_->folder, *trainer_); });
    saved_step_ = checkpoint_->step;
    // All newer ones were not accepted. Left in place, they would count as the newest when old ones go.
    set_aside_ = set_aside_checkpoints(folder_->checkpoints(), checkpoint_->step + 1, "rejected");
  }
  if (start_) begin_with(*start_);
  check_same_weights(comm_, trainer_->model().weights().values());
  if (!request_.resume) write_file_atomic(folder_->identity(), to_text(identity_));
  if (steps_left() || !request_.resume)
    write_file_atomic(folder_->config(), config_.to_toml());
  else
    changes_.clear();
  if (checkpoint_ || request_.resume) folder_->rewind_metrics(trainer_->progress().step);
  metrics_ = std::make_unique<RecordWriter>(folder_->metrics());
  if (config_.train.tensorboard)
    tensorboard_ = std::make_unique<TensorboardWriter>(folder_->tensorboard(), trainer_->progress().step + 1);
  begin();
}

void Run::begin_with(const StoredModel& start) {
  TrainableModel& model = trainer_->model();
  start.load(model.weights(), ex_);
  model.optimizer().start_average(model.weights().values(), ex_);
  model.upload(ex_);
  // Kept as step 0: a run that is killed before its first checkpoint must not begin again from random
  // weights.
  if (comm_.leads()) {
    saver_->save(CheckpointSaver::Prune::kNo, ex_);
    saver_->wait();
    saver_->finished();
  } else {
    send_state(*trainer_);
  }
  saved_step_ = 0;
}

void Run::emit(const Json& record) {
  if (!comm_.leads()) return;
  metrics_->write(record);
  if (tensorboard_) tensorboard_->write(record);
  console_->show(record);
  if (request_.on_record) request_.on_record(record);
}

void Run::message(const std::string& event, const std::string& text) {
  Json record = make_record(event);
  record["step"] = trainer_->progress().step;
  record["message"] = text;
  emit(record);
}

// The screen at the start, and the record of it.
void Run::begin() {
  const ModelPlan plan = plan_model(config_.model, {config_.train.batch, config_.context()});
  const Index parameters = plan.table.parameter_count();
  const std::size_t memory = total_bytes(trainer_->model().memory()) + saver_->copy_bytes();
  const double flops = plan.forward.total() + plan.backward.total();
  const double floor = config_.train.floor ? trainer_->measure_floor() : 0;

  Json record = make_record(request_.resume ? "resume" : "start");
  record["step"] = trainer_->progress().step;
  record["time"] = clock_time();
  record["config"] = config_.to_json();
  record["data"] = identity_["data"];
  record["parameters"] = parameters;
  record["flops_per_token"] = flops;
  record["memory_bytes"] = memory;
  record["threads"] = ex_.threads;
  if (!comm_.alone()) record["ranks"] = comm_.ranks();
  record["isa"] = current_isa();
  record["precision"] = config_.model.numbers();
  record["floor_s"] = floor;
  record["validation_windows"] = trainer_->validator().windows();
  Json changed = Json::array();
  for (const OptionChange& change : changes_)
    changed.push_back(Json{{"key", change.key}, {"before", change.before}, {"after", change.after}});
  if (checkpoint_ || request_.resume) record["changed"] = changed;
  emit(record);

  console_->note(config_screen(config_));
  console_->note(fmt::format(
      "{}: {} parameters, {} memory, {:.1f} MFLOP per token, {} on {}{} thread{} ({})",
      config_.model.residual(), format_count(static_cast<double>(parameters)), format_bytes(memory),
      flops / 1e6, config_.model.precision_text(),
      comm_.alone() ? "" : fmt::format("{} ranks of ", comm_.ranks()), ex_.threads,
      ex_.threads == 1 ? "" : "s",
      floor > 0 ? fmt::format("{}, GEMM floor {:.3g} s per step", current_isa(), floor) : current_isa()));
  console_->note(fmt::format("{}: {} tokens to train on, {} validation windows of {}", data_->folder(),
                             format_count(static_cast<double>(data_->train().tokens())),
                             trainer_->validator().windows(), config_.context()));
  if (steps_left()) console_->note(workload(floor));
  for (const std::string& reason : rejected_) message("rejected", "checkpoint not accepted: " + reason);
  for (const std::string& folder : set_aside_) console_->note("kept aside as " + folder);
  for (const OptionChange& change : changes_)
    console_->note(fmt::format("changed: {} from {} to {}", change.key, change.before, change.after));
  if (checkpoint_ && !request_.resume)
    console_->note(fmt::format("branches off {} at step {}", request_.branch, checkpoint_->step));
  if (request_.resume)
    console_->note(checkpoint_ ? fmt::format("resumed from {}", checkpoint_->folder)
                               : std::string("no checkpoint yet: starting again from step 0"));
  if (!trainer_->validator().possible())
    console_->note("no validation: the data has no validation split of one window or more");
  if (config_.train.sample_every > 0 && request_.sample) {
    if (data_->tokenizer_path().empty())
      console_->note("no samples: the data has no tokenizer");
    else
      tokenizer_ = load_tokenizer(data_->tokenizer_path());
  }
}

// "2000 steps of 2048 tokens, 24 passes over the data, about 14 min".
std::string Run::workload(double floor) const {
  constexpr double kUsualShare = 0.85;  // of the floor that a step reaches
  const Index done = trainer_->progress().step, steps = config_.train.steps - done;
  const auto epoch = [&](Index step) { return trainer_->loader().epoch_of(step * config_.train.accumulate); };
  std::string text =
      fmt::format("{} step{} of {} tokens, {:.3g} passes over the data", steps, steps == 1 ? "" : "s",
                  config_.tokens_per_step(), epoch(config_.train.steps) - epoch(done));
  if (floor > 0)
    text += ", about " + format_duration(static_cast<double>(steps) * floor / kUsualShare) +
            " on an idle machine";
  return text;
}

void Run::poll_saver() {
  if (!comm_.leads()) return;
  const auto report = saver_->finished();
  if (!report) return;
  Json record = make_record("checkpoint");
  record["step"] = report->step;
  record["folder"] = report->folder;
  record["bytes"] = report->bytes;
  record["copy_s"] = report->copy_s;
  record["write_s"] = report->write_s;
  emit(record);
}

// The folder may be gone, or another with its name in its place: what was saved in it is lost.
void Run::expect_folder() const {
  if (!folder_->is_there())
    throw UserError("{}: the run's folder was removed while it trained; what was saved in it is lost",
                    folder_->path());
}

// What stops a step from outside (data that changed on the disk) does not cost the steps before it.
template <class Body>
auto Run::saving_on_error(Body&& body) {
  try {
    return body();
  } catch (const UserError& error) {
    // The other ranks cannot be asked any more. Rank 0 has all there is to save, unless the state is shared out.
    if (!comm_.leads() || trainer_->shares_state()) throw;
    save();
    saver_->wait();
    poll_saver();
    expect_folder();
    const std::string text =
        fmt::format("{}\nThe run is saved at step {}; to continue: ./ddl train --out {} --resume",
                    error.what(), trainer_->progress().step, folder_->path());
    Json record = make_record("stopped");
    record["step"] = trainer_->progress().step;
    record["reason"] = error.what();
    metrics_->write(record);
    throw UserError("{}", text);
  }
}

void Run::save() {
  // After a skipped update the weights may be ruined, and what would go may be the last from before.
  const auto prune =
      trainer_->progress().skipped_in_a_row > 0 ? CheckpointSaver::Prune::kNo : CheckpointSaver::Prune::kYes;
  poll_saver();
  if (saved_step_ == trainer_->progress().step) return;
  if (!comm_.leads()) {
    send_state(*trainer_);
    saved_step_ = trainer_->progress().step;
    return;
  }
  saver_->wait();
  poll_saver();
  expect_folder();
  saver_->save(prune, ex_);
  saved_step_ = trainer_->progress().step;
  saved_at_ = now();
}

bool Run::save_due() const {
  const TrainConfig& c = config_.train;
  const Index step = trainer_->progress().step;
  return (c.save_every_steps > 0 && step % c.save_every_steps == 0) ||
         (c.save_every_minutes > 0 && now() - saved_at_ >= 60 * c.save_every_minutes);
}

// A signal to any rank stops all of them, and rank 0's clock says when to save.
void Run::settle_what_next() {
  next_ = {signals_.received(), save_due()};
  if (comm_.alone()) return;
  std::vector<double> said(static_cast<std::size_t>(comm_.ranks()) + 1);
  said[static_cast<std::size_t>(comm_.rank())] = next_.signal;
  if (comm_.leads()) said.back() = next_.save;
  saving_on_error([&] { comm_.sum(said); });
  next_.save = said.back() != 0;
  said.pop_back();
  next_.signal = static_cast<int>(*std::max_element(said.begin(), said.end()));
}

// A skipped update changes nothing, so the weights are those the last update left, and no batch since then
// had a finite loss with them: going on from them would go wrong again, from any checkpoint that has this
// update, whichever session wrote it. Those with fewer updates had finite losses.
void Run::stop_on_non_finite() {
  save();
  if (!comm_.leads()) throw SharedError("stopped: the loss was not finite");
  saver_->wait();
  poll_saver();
  const Progress& progress = trainer_->progress();
  const Index updates = trainer_->model().optimizer().updates();
  std::optional<CheckpointEntry> before;
  Index first_ruined = progress.step;
  for (const CheckpointEntry& entry : list_checkpoints(folder_->checkpoints())) {
    Index made = 0;
    try {
      made = read_trainer_json(entry.folder).at("updates").get<Index>();
    } catch (const std::exception&) {
      continue;  // damaged: --resume says what is wrong with it
    }
    if (made >= updates) {
      first_ruined = entry.step;
      break;
    }
    before = entry;
  }
  Json resume_step;
  std::string where;
  if (updates == 0) {
    where = "no update was made yet: look at the weights the run began with, and at the data";
    resume_step = progress.step;
  } else {
    if (before) {
      where = fmt::format("--resume continues from {}, the newest from before", before->folder);
      resume_step = before->step;
    } else if (identity_.contains("started_from")) {
      where = "there is no checkpoint from before: begin a new run, --from the same model";
    } else {
      where = "there is no checkpoint from before, so --resume begins again from step 0";
      resume_step = 0;
    }
    where += fmt::format("; the state now is kept aside as {}",
                         set_aside_checkpoints(folder_->checkpoints(), first_ruined, "not-finite").back());
  }
  Json record = make_record("stopped");
  record["step"] = progress.step;
  record["reason"] = "not finite";
  record["resume_step"] = resume_step;
  metrics_->write(record);
  throw NotFiniteError(
      "stopped at step {}: {} updates in a row had a loss or gradient that is not finite, and were skipped. "
      "What helps: a lower learning rate (--set train.lr={:g}), a longer warm-up, or --set "
      "model.precision=f32; {}",
      progress.step, progress.skipped_in_a_row, config_.train.lr / 3, where);
}

void Run::write_sample() {
  if (!tokenizer_) return;
  const double start = now();
  TrainableModel& model = trainer_->model();
  model.download(ex_);
  Json record = make_record("sample");
  record["step"] = trainer_->progress().step;
  record["prompt"] = config_.train.sample_prompt;
  record["text"] = request_.sample(model.weights(), *tokenizer_, config_.train.sample_prompt, ex_);
  emit(record);
  sample_seconds_ += now() - start;
}

// What to do with the model now.
void Run::say_next() {
  const std::string tokenizer = data_->tokenizer_path().empty() ? " --tokenizer TOKENIZER" : "";
  console_->note(fmt::format("Next: ./ddl generate {0}{1} --prompt \"...\", or ./ddl info {0}",
                             folder_->path(), tokenizer));
}

RunOutcome Run::train() {
  const TrainConfig& c = config_.train;
  const Progress& progress = trainer_->progress();
  const auto validate = [&] {
    if (validated_step_ == progress.step) return;
    const Json record = saving_on_error([&] { return trainer_->validate(); });
    if (!record.is_null()) emit(record);
    validated_step_ = progress.step;
  };
  const auto new_best = [&] { return progress.best && progress.best->step == progress.step; };
  if (!steps_left()) {
    // A kill may have come between the last checkpoint and these records.
    if (!progress.last || progress.last->step != progress.step) validate();
    Json record = make_record("done");
    record["step"] = progress.step, record["tokens"] = progress.tokens, record["flops"] = progress.flops;
    record["elapsed_s"] = progress.elapsed_s;
    record["message"] =
        fmt::format("nothing to do: this run is at step {} of {}; --set train.steps=N continues it",
                    progress.step, c.steps);
    emit(record);
    return {out_, progress.step, 0};
  }
  if (out_of_patience()) {
    message("done",
            fmt::format("nothing to do: {} validations without a new best; --set train.patience=N continues",
                        progress.validations_since_best));
    return {out_, progress.step, 0};
  }
  saved_at_ = now();
  const double start = now(), compute_before = trainer_->compute_seconds();
  const Index first = progress.step;
  bool gave_up = false;
  while (steps_left() && stop_signal() == 0) {
    const Json record =
        saving_on_error([&] { return trainer_->step([&] { return signals_.received() != 0; }); });
    if (record.is_null()) {
      gave_up = true;
      break;
    }
    if (progress.step % c.log_every == 0 || progress.step == c.steps || record.contains("skipped"))
      emit(record);
    if (comm_.leads() && c.gates_every > 0 && progress.step % c.gates_every == 0)
      if (const Json gates = trainer_->gates(); !gates.is_null()) emit(gates);
    if (c.eval_every > 0 && progress.step % c.eval_every == 0) validate();
    if (c.sample_every > 0 && progress.step % c.sample_every == 0) write_sample();
    if (progress.skipped_in_a_row >= kMaxSkippedInARow) stop_on_non_finite();
    poll_saver();
    settle_what_next();
    if (next_.save || (c.keep_best > 0 && new_best()) || progress.step == cooldown_start(c)) save();
    if (out_of_patience()) break;
  }
  const double seconds = now() - start - trainer_->validation_seconds() - sample_seconds_;
  const double overhead = 1 - (trainer_->compute_seconds() - compute_before) / seconds;
  // A signal during the last step comes too late to stop anything: the run is done.
  const bool early = steps_left() && out_of_patience();
  const int signal = steps_left() && !early ? stop_signal() : 0;
  if (signal == 0) validate();
  save();
  if (!comm_.leads()) return {"", progress.step, signal};
  saver_->wait();
  poll_saver();
  expect_folder();

  Json record = make_record(signal ? "stopped" : "done");
  record["step"] = progress.step;
  record["steps_this_session"] = progress.step - first;
  record["tokens"] = progress.tokens;
  record["flops"] = progress.flops;
  record["elapsed_s"] = progress.elapsed_s;
  record["skipped"] = progress.skipped;
  record["overhead_share"] = overhead;
  record["best_validation"] = progress.json()["best_validation"];
  if (signal) record["signal"] = signal;
  if (early) record["stopped_early"] = true;
  record["message"] =
      signal ? fmt::format("stopped at step {} and saved{}; to continue: ./ddl train --out {} --resume",
                           progress.step,
                           gave_up ? fmt::format("; step {} was given up half way, --resume repeats it",
                                                 progress.step + 1)
                                   : "",
                           folder_->path())
             : fmt::format("{}: {} steps, {} tokens, {:.3g} FLOPs in {}{}; {}",
                           early ? fmt::format("done early, no new best in {} validations",
                                               progress.validations_since_best)
                                 : "done",
                           progress.step, format_count(static_cast<double>(progress.tokens)), progress.flops,
                           format_seconds(progress.elapsed_s),
                           progress.best ? fmt::format(", best validation loss {:.4f} at step {}",
                                                       progress.best->loss, progress.best->step)
                                         : "",
                           folder_->path());
  emit(record);
  if (signal == 0) say_next();
  return {folder_->path(), progress.step, signal};
}

}  // namespace

std::string out_folder(const RunRequest& request) {
  if (!request.out.empty()) return request.out;
  return "runs/" + (request.config_file.empty() ? std::string("default")
                                                : fs::path(request.config_file).stem().string());
}

RunOutcome run_training(const RunRequest& request, const StopSignals& signals, const Exec& ex) {
  return Run(request, signals, ex).train();
}

}  // namespace ddl
