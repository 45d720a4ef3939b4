#include "torch/device_optimizer.h"

#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/linalg_vector_norm.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "model/optimizer/adamw.h"

namespace ddl {
namespace {

at::Tensor host_tensor(float* data, Index floats) { return at::from_blob(data, {floats}, at::kFloat); }

}  // namespace

DeviceOptimizer::DeviceOptimizer(const Weights& weights, const OptimizerConfig& config, Optimizer& host,
                                 FlatParameters& parameters)
    : config_(config), host_(host), parameters_(parameters), fused_(config.name == "adamw") {
  if (!fused_) return;
  const ParamTable table = with_optimizer_choices(weights.table(), config);
  const std::vector<NamedArray> state = host.state();
  DDL_CHECK(state.size() == 2, "AdamW has {} kinds of state", state.size());
  std::vector<at::Tensor> flat;
  for (const NamedArray& array : state) {
    const at::Tensor kept = host_tensor(array.data, array.floats);
    flat.push_back(kept.to(parameters.device(), /*non_blocking=*/false, /*copy=*/true));
    mirrors_.push_back({flat.back(), kept});
  }
  if (host.average()) {
    const at::Tensor kept = host_tensor(host.average(), weights.table().floats());
    average_ = kept.to(parameters.device(), /*non_blocking=*/false, /*copy=*/true);
    mirrors_.push_back({average_, kept});
  }
  const std::vector<TensorEntry> tensors = tensor_entries(table, weights.config().hidden_lr_factor());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorEntry& t = tensors[i];
    auto group = std::find_if(groups_.begin(), groups_.end(), [&](const Group& g) {
      return g.lr_factor == t.lr_factor && g.decays == t.decays;
    });
    if (group == groups_.end()) group = groups_.insert(group, Group{t.lr_factor, t.decays, {}, {}, {}, {}});
    group->values.push_back(parameters.values().narrow(0, t.offset, t.count));
    group->gradients.push_back(parameters.gradients().narrow(0, t.offset, t.count));
    group->mean.push_back(flat[0].narrow(0, state[0].tensors[i].offset, t.count));
    group->square.push_back(flat[1].narrow(0, state[1].tensors[i].offset, t.count));
  }
}

Optimizer::Update DeviceOptimizer::step(Weights& weights, double lr, const Exec& ex) {
  if (!fused_) return step_on_host(weights, lr, ex);
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
  const auto& adamw = config_.own.as<AdamWOptions>();
  for (Group& g : groups_) {
    const at::Tensor at_step = at::empty({}, parameters_.values().options()).fill_(number);
    const std::vector<at::Tensor> steps(g.values.size(), at_step);
    at::_fused_adamw_(g.values, g.gradients, g.mean, g.square, {}, steps, lr * g.lr_factor, adamw.beta1,
                      adamw.beta2, g.decays ? config_.weight_decay : 0, adamw.eps, /*amsgrad=*/false,
                      /*maximize=*/false);
  }
  gradients.zero_();
  if (average_.defined()) {
    const double keep = std::min(config_.average, (1 + number) / (10 + number));  // as Optimizer::step
    average_.sub_(parameters_.values()).mul_(keep).add_(parameters_.values());
  }
  return result;
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
