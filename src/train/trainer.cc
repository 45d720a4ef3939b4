#include "train/trainer.h"

#include <algorithm>
#include <cmath>

#include "core/clock.h"
#include "core/error.h"
#include "core/machine.h"
#include "model/engine.h"
#include "model/plan.h"
#include "train/gradient_reducer.h"
#include "train/handshake.h"
#include "train/schedule.h"
#include "train/series_stats.h"
#include "train/shared_state.h"
#include "train/snapshot.h"

namespace ddl {
namespace {

constexpr Index kMaxSteps = 1'000'000'000'000;

Json validated_json(const std::optional<Progress::Validated>& v) {
  return v ? Json{{"step", v->step}, {"loss", v->loss}} : Json(nullptr);
}

std::optional<Progress::Validated> parse_validated(const JsonFields& fields, const char* name) {
  if (fields.at(name).is_null()) return std::nullopt;
  const JsonFields validated = fields.object(name);
  // The loss is null where it was not finite.
  return Progress::Validated{validated.whole("step"),
                             validated.at("loss").is_null() ? NAN : validated.number("loss")};
}

BatchShape shape_of(const RunConfig& config) { return {config.train.batch, config.context()}; }

// The optimizer's options, and with train.zero this rank's part of its state.
OptimizerConfig optimizer_of(const RunConfig& config, const Comm& comm) {
  OptimizerConfig optimizer = config.train.optimizer;
  if (config.train.zero && !comm.alone()) optimizer.share = {comm.rank(), comm.ranks()};
  return optimizer;
}

// Optimizer state, and where checkpoints are written in the background a copy of it and of the parameters.
void check_memory(const RunConfig& config, const ModelPlan& plan, const Comm& comm) {
  Arena measured = Arena::measuring();
  const auto optimizer =
      make_optimizer(plan.table, config.model.hidden_lr_factor(), optimizer_of(config, comm), measured);
  const bool shares = config.train.zero && !comm.alone();
  if (comm.leads() && (config.train.background || shares))
    take_snapshot(plan.table, shares ? whole_state(config, plan.table) : optimizer->state(),
                  optimizer->has_average(), measured);
  const std::size_t bytes = measured.used_bytes();
  if (plan.total_bytes + bytes > machine_memory_bytes())
    throw UserError(
        "training needs {} ({} for the model and its activations, {} for the optimizer and the checkpoints' "
        "copy), the machine has {}; a smaller train.batch, model.recompute=block or "
        "checkpoint.background=false needs less",
        format_bytes(plan.total_bytes + bytes), format_bytes(plan.total_bytes), format_bytes(bytes),
        format_bytes(machine_memory_bytes()));
}

}  // namespace

Json Progress::json() const {
  return Json{{"step", step},
              {"tokens", tokens},
              {"flops", flops},
              {"elapsed_s", elapsed_s},
              {"skipped", skipped},
              {"last_validation", validated_json(last)},
              {"best_validation", validated_json(best)},
              {"validations_since_best", validations_since_best}};
}

Progress Progress::parse(const JsonFields& fields) {
  Progress p;
  p.step = fields.whole("step", 0, kMaxSteps);
  p.tokens = fields.whole("tokens");
  p.flops = fields.number("flops");
  p.elapsed_s = fields.number("elapsed_s");
  p.skipped = fields.whole("skipped");
  p.last = parse_validated(fields, "last_validation");
  p.best = parse_validated(fields, "best_validation");
  if (fields.has("validations_since_best"))  // not in older checkpoints
    p.validations_since_best = fields.whole("validations_since_best");
  return p;
}

Trainer::Trainer(const RunConfig& config, const Dataset& data, const Exec& ex, Comm& comm)
    : config_(config),
      ex_(ex),
      comm_(comm),
      loader_(data.train(), data.end_of_text(),
              {config.train.batch, config.context(), static_cast<std::uint64_t>(config.train.seed),
               config.train.data_order}),
      validator_(data, config.context(), config.train.eval_windows) {
  const ModelPlan plan = plan_model(config.model, shape_of(config));
  flops_per_token_ = plan.forward.total() + plan.backward.total();
  check_memory(config, plan, comm);
  model_ = make_trainable(config.model, shape_of(config), optimizer_of(config, comm),
                          static_cast<std::uint64_t>(config.train.seed), ex);
  if (!comm.alone()) {
    const std::optional<TrainableModel::Gpu> gpu = model_->gpu();
    if (agree_on_backend(comm, {machine_name(), gpu ? gpu->address : ""}) == Backend::kNccl) {
      if (config.train.zero)
        fail_on_all(
            comm,
            "train.zero: an optimizer on a GPU keeps its whole state; leave it out, or use --device cpu");
      comm.reduce_on_gpu(gpu->number);
    }
  }
  if (shares_state())
    model_->optimizer().set_exchange([this] {
      exchange_parameters(comm_, model_->weights().table(), model_->weights().values());
      model_->upload(ex_);
    });
}

double Trainer::measure_floor() {
  constexpr double kEnoughSeconds = 0.5;
  constexpr int kMaxRounds = 10;
  double best = 0;
  const double start = now();
  // Once to warm up, then until there is enough to choose from.
  for (int round = 0; round < 2 || (round < kMaxRounds && now() - start < kEnoughSeconds); ++round) {
    const double seconds = model_->measure_floor(ex_);
    best = round < 2 ? seconds : std::min(best, seconds);
  }
  return floor_seconds_ = best * static_cast<double>(config_.train.accumulate / comm_.ranks());
}

// No step is faster than its matrix products alone. One that seems to be shows that the floor was measured while
// something else had the machine: it is measured again, and left out where it still is no floor.
void Trainer::add_floor_share(double step_seconds, Json& record) {
  constexpr double kNoise = 1.05;
  if (floor_seconds_ <= 0) return;
  if (floor_seconds_ > kNoise * step_seconds && floor_attempts_ > 0) {
    --floor_attempts_;
    measure_floor();
  }
  if (floor_seconds_ > kNoise * step_seconds)
    record["floor_busy"] = true;
  else
    record["floor_share"] = std::min(1.0, floor_seconds_ / step_seconds);
}

// In one message every micro-batch's loss and the seconds that every rank computed. Returns the loss: the mean in the
// micro-batches' order, whatever rank had them. A rank that took longer than the others by a fifth is named.
double Trainer::exchange_losses(std::vector<double>& losses, double computed, Json& record) {
  constexpr double kSlow = 1.2;
  const auto micros = std::ssize(losses);
  losses.resize(losses.size() + static_cast<std::size_t>(comm_.ranks()));
  losses[static_cast<std::size_t>(micros + comm_.rank())] = computed;
  comm_.sum(losses);
  std::vector<double> seconds(losses.begin() + micros, losses.end()), sorted = seconds;
  std::sort(sorted.begin(), sorted.end());
  const double usual = sorted[(sorted.size() - 1) / 2];  // of two ranks, the faster one
  const auto slowest = std::max_element(seconds.begin(), seconds.end());
  record["rank_s"] = usual;
  if (*slowest > kSlow * usual) {
    record["slow_rank"] = slowest - seconds.begin();
    record["slow_rank_s"] = *slowest;
  }
  const double share = 1.0 / static_cast<double>(micros);
  double loss = 0;
  for (Index micro = 0; micro < micros; ++micro) loss += share * losses[micro];
  return loss;
}

Json Trainer::step(FunctionRef<bool()> give_up) {
  const double start = now();
  const TrainConfig& c = config_.train;
  const double share = 1.0 / static_cast<double>(c.accumulate), lr = learning_rate(c, progress_.step);
  double loss = 0, computed = 0;
  const Index ranks = comm_.ranks();
  std::vector<double> losses(comm_.alone() ? 0 : static_cast<std::size_t>(c.accumulate));
  Json of_ranks = Json::object();  // what is known of them
  for (Index micro = comm_.rank(); micro < c.accumulate; micro += ranks) {
    if (micro > 0 && comm_.alone() && give_up()) {
      model_->discard_gradients(ex_);
      return nullptr;
    }
    try {
      loader_.load(progress_.step * c.accumulate + micro, batch_);
    } catch (const UserError&) {
      model_->discard_gradients(ex_);
      throw;
    }
    const double before = now();
    const BatchView batch{batch_.inputs_BT.data(), batch_.targets_BT.data()};
    if (comm_.alone()) {
      loss += share * model_->loss_and_grad(batch, share, ex_);
    } else if (micro + ranks < c.accumulate) {
      losses[micro] = model_->loss_and_grad(batch, share, ex_);
    } else {  // the last one: its gradients leave as they become final
      try {
        GradientReducer reducer(comm_, model_->gradients_to_sum());
        losses[micro] = model_->loss_and_grad_in_parts(
            batch, share, [&](Index begin, Index end) { reducer.ready(begin, end); }, ex_);
        const double own = computed + now() - before;
        reducer.finish();
        loss = exchange_losses(losses, own, of_ranks);
        of_ranks["wait_s"] = computed + now() - before - own;
      } catch (const CommError&) {  // nothing is on its way any more
        model_->discard_gradients(ex_);
        throw;
      }
    }
    computed += now() - before;
  }
  const double before_update = now();
  Optimizer::Update update;
  if (std::isfinite(loss))
    update = model_->update(lr, ex_);
  else
    model_->discard_gradients(ex_), update.grad_norm = NAN;
  computed += now() - before_update;
  compute_seconds_ += computed;

  const Index tokens = config_.tokens_per_step();
  ++progress_.step;
  progress_.tokens += tokens;
  progress_.flops += flops_per_token_ * static_cast<double>(tokens);
  progress_.skipped += !update.applied;
  progress_.skipped_in_a_row = update.applied ? 0 : progress_.skipped_in_a_row + 1;
  const double seconds = now() - start;
  progress_.elapsed_s += seconds;

  Json record = make_record("step");
  record["step"] = progress_.step;
  record["loss"] = loss;
  record["grad_norm"] = update.grad_norm;
  record["lr"] = lr;
  record["tokens"] = progress_.tokens;
  record["epoch"] = loader_.epoch_of(progress_.step * c.accumulate);
  record["flops"] = progress_.flops;
  record["elapsed_s"] = progress_.elapsed_s;
  record["step_s"] = seconds;
  record["tokens_per_s"] = static_cast<double>(tokens) / seconds;
  record.update(of_ranks);
  add_floor_share(seconds, record);
  if (!update.applied) record["skipped"] = true;
  return record;
}

Json Trainer::validate() {
  if (!validator_.possible()) return nullptr;
  const double start = now();
  const auto swap_average = [&] {
    if (!model_->optimizer().average()) return;
    model_->download(ex_);
    model_->optimizer().swap_average(model_->weights().values(), ex_);
    model_->upload(ex_);
  };
  swap_average();
  ValidationResult result;
  try {
    result = validator_.run(*model_, ex_, comm_);
  } catch (...) {
    swap_average();  // what is saved now must be the weights that learn
    throw;
  }
  swap_average();
  progress_.last = {progress_.step, result.loss};
  // A NaN is never the best, nor does it keep a later one from being it.
  const bool better = std::isfinite(result.loss) && (!progress_.best || result.loss < progress_.best->loss);
  if (better) progress_.best = progress_.last;
  progress_.validations_since_best = better ? 0 : progress_.validations_since_best + 1;
  const double seconds = now() - start;
  validation_seconds_ += seconds;
  progress_.elapsed_s += seconds;

  Json record = make_record("validation");
  record["step"] = progress_.step;
  record.update(result.json());
  record["best"] = better;
  record["tokens"] = progress_.tokens;
  record["flops"] = progress_.flops;
  record["elapsed_s"] = progress_.elapsed_s;
  record["seconds"] = seconds;
  return record;
}

Json Trainer::gates() const {
  Json sublayers = series_statistics(*model_, ex_);
  if (sublayers.is_null()) return nullptr;
  Json record = make_record("gates");
  record["step"] = progress_.step;
  record["sublayers"] = std::move(sublayers);
  return record;
}

void Trainer::restore(const Progress& progress, Index updates) {
  progress_ = progress;
  model_->optimizer().set_updates(updates);
  model_->upload(ex_);
}

}  // namespace ddl
