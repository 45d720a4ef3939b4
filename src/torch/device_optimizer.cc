#include "torch/device_optimizer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/error.h"

namespace ddl {
namespace {

// Not by the name, which another optimizer may take over, nor by the options, which another may have as well.
bool is(const OptimizerConfig& config, const OptimizerEntry& entry) {
  return find_optimizer(config.name).make == entry.make;
}

at::Tensor host_tensor(float* data, Index floats) { return at::from_blob(data, {floats}, at::kFloat); }

}  // namespace

DeviceOptimizer::DeviceOptimizer(const Weights& weights, const OptimizerConfig& config, Optimizer& host,
                                 FlatParameters& parameters)
    : config_(config),
      muon_(is(config_, muon_entry()) ? &config_.own.as<MuonOptions>() : nullptr),
      adamw_(muon_                        ? &muon_->rest
             : is(config_, adamw_entry()) ? &config_.own.as<AdamWOptions>()
                                          : nullptr),
      host_(host),
      parameters_(parameters) {
  if (!adamw_) return;
  const auto on_device = [&](float* data, Index floats) {
    const at::Tensor kept = host_tensor(data, floats);
    mirrors_.push_back({kept.to(parameters.device(), /*non_blocking=*/false, /*copy=*/true), kept});
    return mirrors_.back().device;
  };
  // Of AdamW the means of gradients and of their squares; of Muon the momentum of its matrices first.
  const std::vector<NamedArray> state = host.state();
  DDL_CHECK(state.size() == (muon_ ? 3u : 2u), "{} has {} kinds of state", config.name, state.size());
  std::vector<std::map<Index, at::Tensor>> of_param(state.size());  // by the tensor's place in the table
  std::map<Index, TensorEntry> tensors;
  for (const TensorEntry& t :
       tensor_entries(with_optimizer_choices(weights.table(), config), weights.config().hidden_lr_factor()))
    tensors[t.param] = t;
  for (std::size_t kind = 0; kind < state.size(); ++kind) {
    const at::Tensor flat = on_device(state[kind].data, state[kind].floats);
    for (const NamedArray::Tensor& t : state[kind].tensors)
      of_param[kind][t.param] = flat.narrow(0, t.offset, tensors.at(t.param).count);
  }
  if (host.average()) average_ = on_device(host.average(), weights.table().floats());
  for (const auto& [param, t] : tensors) {
    if (!muon_ || !of_param[0].contains(param)) {
      add_group(t, of_param[state.size() - 2].at(param), of_param[state.size() - 1].at(param));
      continue;
    }
    const auto matrix = [&, rows = t.rows, cols = t.cols](const at::Tensor& x) {
      return x.view({rows, cols});
    };
    matrices_.push_back({t.lr_factor, t.decays, matrix(parameters.values().narrow(0, t.offset, t.count)),
                         matrix(parameters.gradients().narrow(0, t.offset, t.count)),
                         matrix(of_param[0].at(param))});
  }
}

void DeviceOptimizer::add_group(const TensorEntry& t, const at::Tensor& mean, const at::Tensor& square) {
  auto group = std::find_if(groups_.begin(), groups_.end(), [&](const Group& g) {
    return g.lr_factor == t.lr_factor && g.decays == t.decays;
  });
  if (group == groups_.end()) group = groups_.insert(group, Group{t.lr_factor, t.decays, {}, {}, {}, {}});
  group->values.push_back(parameters_.values().narrow(0, t.offset, t.count));
  group->gradients.push_back(parameters_.gradients().narrow(0, t.offset, t.count));
  group->mean.push_back(mean);
  group->square.push_back(square);
}

Optimizer::Update DeviceOptimizer::step(Weights& weights, double lr, const Exec& ex) {
  if (!adamw_) return step_on_host(weights, lr, ex);
  Optimizer::Update result;
  at::Tensor gradients = parameters_.gradients();
  result.grad_norm = at::linalg_vector_norm(gradients, 2, {}, false, at::kDouble).item<double>();
  if (!std::isfinite(result.grad_norm)) {
    gradients.zero_();
    return result;
  }
  result.applied = true;
  host_.set_updates(host_.updates() + 1);
  if (config_.clip > 0 && result.grad_norm > config_.clip) gradients *= config_.clip / result.grad_norm;
  const auto number = static_cast<double>(host_.updates());
  for (Matrix& matrix : matrices_) update(matrix, lr);
  for (Group& group : groups_) update(group, lr, number);
  gradients.zero_();
  if (average_.defined()) {
    average_.sub_(parameters_.values()).mul_(host_.average_keeps()).add_(parameters_.values());
  }
  return result;
}

void DeviceOptimizer::update(Group& g, double lr, double number) const {
  const std::vector<at::Tensor> steps(g.values.size(),
                                      at::empty({}, parameters_.values().options()).fill_(number));
  at::_fused_adamw_(g.values, g.gradients, g.mean, g.square, {}, steps, lr * g.lr_factor, adamw_->beta1,
                    adamw_->beta2, g.decays ? config_.weight_decay : 0, adamw_->eps, /*amsgrad=*/false,
                    /*maximize=*/false);
}

// As model/optimizer/muon.cc:   m = mu m + g      x = (g + mu m) / |g + mu m|
//   some times, with A = x x^T:   x = (a I + b A + c A^2) x      (more rows than columns: A = x^T x, from the right)
//   p = p (1 - lr decay) - lr 0.2 sqrt(max(rows, cols)) x
// Where the norm is lost, x is 0 and stays so: nothing waits for the device to say which it is.
void DeviceOptimizer::update(Matrix& matrix, double lr) const {
  const std::int64_t rows = matrix.value.size(0), cols = matrix.value.size(1);
  const double lost = MuonOptions::kSmallestRms * std::sqrt(static_cast<double>(rows * cols));
  matrix.momentum.mul_(muon_->momentum).add_(matrix.gradient);
  at::Tensor x = at::add(matrix.gradient, matrix.momentum, muon_->momentum);
  const at::Tensor norm = at::linalg_vector_norm(x, 2, {}, false, at::kDouble);
  x *= at::where(norm < lost, 0.0, norm.reciprocal()).to(at::kFloat);
  const bool wide = rows <= cols;
  for (Index i = 0; i < muon_->newton_schulz; ++i) {
    const at::Tensor A = wide ? x.mm(x.t()) : x.t().mm(x);
    at::Tensor factor = MuonOptions::kB * A + MuonOptions::kC * A.mm(A);
    factor.diagonal() += MuonOptions::kA;
    x = wide ? factor.mm(x) : x.mm(factor);
  }
  const double rate = lr * matrix.lr_factor;
  matrix.value.mul_(1 - rate * (matrix.decays ? config_.weight_decay : 0))
      .sub_(x, rate * MuonOptions::kAdamWRms * std::sqrt(static_cast<double>(std::max(rows, cols))));
}

Optimizer::Update DeviceOptimizer::step_on_host(Weights& weights, double lr, const Exec& ex) {
  at::Tensor gradients = parameters_.gradients().cpu().clone();
  parameters_.download();
  const Optimizer::Update result =
      host_.step(weights.values(),
                 {static_cast<float*>(gradients.data_ptr()), static_cast<std::size_t>(gradients.numel())},
                 nullptr, lr, ex);
  parameters_.upload();
  parameters_.gradients().zero_();
  return result;
}

void DeviceOptimizer::download() {
  for (Mirror& m : mirrors_) m.host.copy_(m.device);
}
void DeviceOptimizer::upload() {
  for (Mirror& m : mirrors_) m.device.copy_(m.host);
}

}  // namespace ddl
