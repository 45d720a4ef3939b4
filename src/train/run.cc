#include "train/run.h"

#include <algorithm>
#include <ctime>
#include <memory>
#include <optional>

#include "core/clock.h"
#include "core/error.h"
#include "data/progress_line.h"
#include "io/checkpoint_folder.h"
#include "io/file.h"
#include "model/instruction_set.h"
#include "model/plan.h"
#include "train/checkpoint_saver.h"
#include "train/handshake.h"
#include "train/run_config.h"
#include "train/run_start.h"
#include "train/schedule.h"
#include "train/tensorboard.h"
#include "train/trainer.h"

namespace ddl {
namespace {

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
      : request_(request),
        signals_(signals),
        ex_(ex),
        comm_(request.comm ? *request.comm : alone()),
        run_(request, comm_, ex) {
    open();
  }
  RunOutcome train();

 private:
  void open();
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
  bool steps_left() const { return trainer_->progress().step < run_.config.train.steps; }
  void stop_on_non_finite();
  void wait_for_rank_0();
  void write_sample();
  bool out_of_patience() const {
    const Index patience = run_.config.train.patience;
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
  RunStart run_;
  std::vector<std::string> set_aside_;  // where checkpoints that were not accepted are now
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

void Run::open() {
  if (!comm_.leads()) {
    trainer_ = std::make_unique<Trainer>(run_.config, *run_.data, ex_, comm_);
    if (run_.checkpoint) reading_the_run([&] { load_checkpoint(run_.checkpoint->folder, *trainer_); });
    if (run_.checkpoint) saved_step_ = run_.checkpoint->step;
    if (run_.model) begin_with(*run_.model);
    check_same_weights(comm_, trainer_->model().weights());
    if (run_.config.train.floor) trainer_->measure_floor();
    return;
  }
  console_ = std::make_unique<Console>(request_.style, run_.config.train.screen_seconds,
                                       run_.config.train.steps, run_.folder->metrics());
  trainer_ = std::make_unique<Trainer>(run_.config, *run_.data, ex_, comm_);
  saver_ = std::make_unique<CheckpointSaver>(run_.folder->checkpoints(), *trainer_,
                                             fixed_files(run_.config.model, *run_.data), run_.identity);
  if (run_.checkpoint) {
    reading_the_run([&] { load_checkpoint(run_.checkpoint->folder, *trainer_); });
    saved_step_ = run_.checkpoint->step;
    // All newer ones were not accepted. Left in place, they would count as the newest when old ones go.
    set_aside_ = set_aside_checkpoints(run_.folder->checkpoints(), run_.checkpoint->step + 1, "rejected");
  }
  if (run_.model) begin_with(*run_.model);
  check_same_weights(comm_, trainer_->model().weights());
  if (!request_.resume) write_file_atomic(run_.folder->identity(), to_text(run_.identity));
  if (steps_left() || !request_.resume)
    write_file_atomic(run_.folder->config(), run_.config.to_toml());
  else
    run_.changes.clear();
  if (run_.checkpoint || request_.resume) run_.folder->rewind_metrics(trainer_->progress().step);
  metrics_ = std::make_unique<RecordWriter>(run_.folder->metrics());
  if (run_.config.train.tensorboard)
    tensorboard_ =
        std::make_unique<TensorboardWriter>(run_.folder->tensorboard(), trainer_->progress().step + 1);
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
  const ModelPlan plan = plan_model(run_.config.model, {run_.config.train.batch, run_.config.context()});
  const Index parameters = plan.table.parameter_count();
  const std::size_t memory = total_bytes(trainer_->model().memory()) + saver_->copy_bytes();
  const double flops = plan.forward.total() + plan.backward.total();
  const double floor = run_.config.train.floor ? trainer_->measure_floor() : 0;

  Json record = make_record(request_.resume ? "resume" : "start");
  record["step"] = trainer_->progress().step;
  record["time"] = clock_time();
  record["config"] = run_.config.to_json();
  record["data"] = run_.identity["data"];
  record["parameters"] = parameters;
  record["flops_per_token"] = flops;
  record["memory_bytes"] = memory;
  record["threads"] = ex_.threads;
  if (!comm_.alone()) record["ranks"] = comm_.ranks();
  record["isa"] = current_isa();
  record["precision"] = run_.config.model.numbers();
  record["floor_s"] = floor;
  record["validation_windows"] = trainer_->validator().windows();
  Json changed = Json::array();
  for (const OptionChange& change : run_.changes)
    changed.push_back(Json{{"key", change.key}, {"before", change.before}, {"after", change.after}});
  if (run_.checkpoint || request_.resume) record["changed"] = changed;
  emit(record);

  console_->note(config_screen(run_.config));
  console_->note(fmt::format(
      "{}: {} parameters, {} memory, {:.1f} MFLOP per token, {} on {}{} thread{} ({})",
      run_.config.model.residual(), format_count(static_cast<double>(parameters)), format_bytes(memory),
      flops / 1e6, run_.config.model.precision_text(),
      comm_.alone() ? "" : fmt::format("{} ranks of ", comm_.ranks()), ex_.threads,
      ex_.threads == 1 ? "" : "s",
      floor > 0 ? fmt::format("{}, GEMM floor {:.3g} s per step", current_isa(), floor) : current_isa()));
  console_->note(fmt::format("{}: {} tokens to train on, {} validation windows of {}", run_.data->folder(),
                             format_count(static_cast<double>(run_.data->train().tokens())),
                             trainer_->validator().windows(), run_.config.context()));
  if (steps_left()) console_->note(workload(floor));
  if (const TrainConfig& train = run_.config.train; steps_left() && train.warmup >= train.steps)
    console_->note(fmt::format("the learning rate only rises: train.warmup is {}, train.steps {}",
                               train.warmup, train.steps));
  for (const std::string& reason : run_.rejected) message("rejected", "checkpoint not accepted: " + reason);
  for (const std::string& folder : set_aside_) console_->note("kept aside as " + folder);
  for (const OptionChange& change : run_.changes)
    console_->note(fmt::format("changed: {} from {} to {}", change.key, change.before, change.after));
  if (run_.checkpoint && !request_.resume)
    console_->note(fmt::format("branches off {} at step {}", request_.branch, run_.checkpoint->step));
  if (request_.resume)
    console_->note(run_.checkpoint ? fmt::format("resumed from {}", run_.checkpoint->folder)
                                   : std::string("no checkpoint yet: starting again from step 0"));
  if (!trainer_->validator().possible())
    console_->note("no validation: the data has no validation split of one window or more");
  if (run_.config.train.sample_every > 0 && request_.sample) {
    if (run_.data->tokenizer_path().empty())
      console_->note("no samples: the data has no tokenizer");
    else
      tokenizer_ = load_tokenizer(run_.data->tokenizer_path());
  }
}

// "2000 steps of 2048 tokens, 24 passes over the data, about 14 min".
std::string Run::workload(double floor) const {
  constexpr double kUsualShare = 0.85;  // of the floor that a step reaches
  const Index done = trainer_->progress().step, steps = run_.config.train.steps - done;
  const auto epoch = [&](Index step) {
    return trainer_->loader().epoch_of(step * run_.config.train.accumulate);
  };
  std::string text =
      fmt::format("{} step{} of {} tokens, {:.3g} passes over the data", steps, steps == 1 ? "" : "s",
                  run_.config.tokens_per_step(), epoch(run_.config.train.steps) - epoch(done));
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
  if (!run_.folder->is_there())
    throw UserError("{}: the run's folder was removed while it trained; what was saved in it is lost",
                    run_.folder->path());
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
                    error.what(), trainer_->progress().step, run_.folder->path());
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
  const TrainConfig& c = run_.config.train;
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

// A rank that ends early is, to a launcher, a reason to end the others: while rank 0 still writes, all stay.
void Run::wait_for_rank_0() {
  if (comm_.alone()) return;
  double nothing = 0;
  comm_.sum({&nothing, 1});
}

// A skipped update changes nothing, so the weights are those the last update left, and no batch since then
// had a finite loss with them: going on from them would go wrong again, from any checkpoint that has this
// update, whichever session wrote it. Those with fewer updates had finite losses.
void Run::stop_on_non_finite() {
  save();
  if (comm_.leads()) saver_->wait();
  wait_for_rank_0();
  if (!comm_.leads()) throw SharedError("stopped: the loss was not finite");
  poll_saver();
  const Progress& progress = trainer_->progress();
  const Index updates = trainer_->model().optimizer().updates();
  std::optional<CheckpointEntry> before;
  Index first_ruined = progress.step;
  for (const CheckpointEntry& entry : list_checkpoints(run_.folder->checkpoints())) {
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
    } else if (run_.identity.contains("started_from")) {
      where = "there is no checkpoint from before: begin a new run, --from the same model";
    } else {
      where = "there is no checkpoint from before, so --resume begins again from step 0";
      resume_step = 0;
    }
    where +=
        fmt::format("; the state now is kept aside as {}",
                    set_aside_checkpoints(run_.folder->checkpoints(), first_ruined, "not-finite").back());
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
      progress.step, progress.skipped_in_a_row, run_.config.train.lr / 3, where);
}

void Run::write_sample() {
  if (!tokenizer_) return;
  const double start = now();
  TrainableModel& model = trainer_->model();
  model.download(ex_);
  Json record = make_record("sample");
  record["step"] = trainer_->progress().step;
  record["prompt"] = run_.config.train.sample_prompt;
  record["text"] = request_.sample(model.weights(), *tokenizer_, run_.config.train.sample_prompt, ex_);
  emit(record);
  sample_seconds_ += now() - start;
}

// What to do with the model now.
void Run::say_next() {
  const std::string tokenizer = run_.data->tokenizer_path().empty() ? " --tokenizer TOKENIZER" : "";
  console_->note(fmt::format("Next: ./ddl generate {0}{1} --prompt \"...\", or ./ddl info {0}",
                             run_.folder->path(), tokenizer));
}

RunOutcome Run::train() {
  const TrainConfig& c = run_.config.train;
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
    return {run_.out, progress.step, 0};
  }
  if (out_of_patience()) {
    message("done",
            fmt::format("nothing to do: {} validations without a new best; --set train.patience=N continues",
                        progress.validations_since_best));
    return {run_.out, progress.step, 0};
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
  if (comm_.leads()) saver_->wait();
  wait_for_rank_0();
  if (!comm_.leads()) return {"", progress.step, signal};
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
                           run_.folder->path())
             : fmt::format("{}: {} steps, {} tokens, {:.3g} FLOPs in {}{}; {}",
                           early ? fmt::format("done early, no new best in {} validations",
                                               progress.validations_since_best)
                                 : "done",
                           progress.step, format_count(static_cast<double>(progress.tokens)), progress.flops,
                           format_seconds(progress.elapsed_s),
                           progress.best ? fmt::format(", best validation loss {:.4f} at step {}",
                                                       progress.best->loss, progress.best->step)
                                         : "",
                           run_.folder->path());
  emit(record);
  if (signal == 0) say_next();
  return {run_.folder->path(), progress.step, signal};
}

}  // namespace

RunOutcome run_training(const RunRequest& request, const StopSignals& signals, const Exec& ex) {
  return Run(request, signals, ex).train();
}

}  // namespace ddl
