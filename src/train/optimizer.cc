#include "train/optimizer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/profiler.h"
#include "kernels/adamw.h"

namespace ddl {
namespace {

constexpr Index kGrain = 1 << 16;

}  // namespace

Optimizer::Optimizer(Model& model, const TrainConfig& config, Arena& arena) : model_(model), config_(config) {
  const ParamTable& table = model.table();
  const ModelConfig& shape = model.config();
  const double hidden_factor =
      shape.mup ? static_cast<double>(shape.base_width) / static_cast<double>(shape.width) : 1.0;
  for (const Param& param : table.list()) {
    const double factor = param.hidden_matrix ? hidden_factor : 1.0;
    // Gaps between tensors hold zeros with zero gradients, so a group may span them.
    if (!groups_.empty() && groups_.back().lr_factor == factor && groups_.back().decays == param.decays)
      groups_.back().end = param.offset + param.count;
    else
      groups_.push_back({param.offset, param.offset + param.count, factor, param.decays});
  }
  state_.mean = arena.take<float>("optimizer: mean gradient", table.floats());
  state_.square = arena.take<float>("optimizer: mean square", table.floats());
  if (config.ema > 0) state_.average = arena.take<float>("average of weights", table.floats());
}

Optimizer::Update Optimizer::step(double lr, const Exec& ex) {
  const ProfileScope scope("optimizer", ex);
  const std::span<float> grads = model_.grads(), params = model_.params();
  Update update;
  update.grad_norm = std::sqrt(sum_of_squares(grads.data(), std::ssize(grads), ex));
  if (!std::isfinite(update.grad_norm)) {
    discard(ex);
    return update;
  }
  update.applied = true;
  ++updates_;
  AdamW adamw;
  adamw.beta1 = config_.beta1, adamw.beta2 = config_.beta2, adamw.eps = config_.eps;
  adamw.grad_scale = config_.clip > 0 && update.grad_norm > config_.clip ? config_.clip / update.grad_norm : 1;
  adamw.step = updates_;
  bf16* copy = model_.bf16_copy();
  for (const Group& group : groups_) {
    adamw.lr = lr * group.lr_factor;
    adamw.weight_decay = group.decays ? config_.weight_decay : 0;
    adamw_step(params.data() + group.begin, state_.mean + group.begin, state_.square + group.begin,
               copy ? copy + group.begin : nullptr, grads.data() + group.begin, /*zero_grad=*/true, adamw,
               group.end - group.begin, ex);
  }
  if (state_.average) {
    // Early on the average follows quickly, so that the starting values do not linger in it.
    const double n = static_cast<double>(updates_);
    const float keep = static_cast<float>(std::min(config_.ema, (1 + n) / (10 + n)));
    float* average = state_.average;
    parallel_chunks(std::ssize(params), kGrain, ex, [&](Index begin, Index end) {
      for (Index i = begin; i < end; ++i) average[i] = params[i] + keep * (average[i] - params[i]);
    });
  }
  return update;
}

void Optimizer::discard(const Exec& ex) {
  const std::span<float> grads = model_.grads();
  parallel_chunks(std::ssize(grads), kGrain, ex,
                  [&](Index begin, Index end) { std::fill(&grads[begin], grads.data() + end, 0.0f); });
}

void Optimizer::start_average(const Exec& ex) {
  if (!state_.average) return;
  const std::span<float> params = model_.params();
  parallel_chunks(std::ssize(params), kGrain, ex, [&](Index begin, Index end) {
    std::copy(params.data() + begin, params.data() + end, state_.average + begin);
  });
}

void Optimizer::swap_average(const Exec& ex) {
  if (!state_.average) return;
  const std::span<float> params = model_.params();
  parallel_chunks(std::ssize(params), kGrain, ex, [&](Index begin, Index end) {
    std::swap_ranges(params.data() + begin, params.data() + end, state_.average + begin);
  });
  model_.params_changed(ex);
}

}  // namespace ddl
