#include "bench/step_work.h"

#include "core/arena.h"
#include "model/optimizer/optimizer.h"

namespace ddl {
namespace {

// Bytes that one token moves in a pass where each kernel reads its inputs and writes its outputs once. C
// features, F of the MLP, V words, D channels of f32 state, a bytes of an activation.
//   residual, per sublayer    forward: state in and out, h in, context out. backward: state and its gradient in and out, h, context and
//                             their gradients
//   attention                 q, k, v through norm and rotation, in and out; the same backwards, with the saved ones
//   MLP                       forward: two halves in, one out. backward: those in, gradient in, two out
//   head                      logits out and in, their gradient out and in
struct Traffic {
  double forward = 0, backward = 0;
};
Traffic traffic(const ModelConfig& config, double state_bytes, double a) {
  const double L = static_cast<double>(config.layers), C = static_cast<double>(config.width),
               F = static_cast<double>(config.mlp_width()), V = static_cast<double>(config.vocab);
  Traffic t;
  t.forward = 2 * L * (2 * state_bytes + 2 * a * C) + L * (6 * a * C + 3 * a * F) + 2 * a * V;
  t.backward = 2 * L * (4 * state_bytes + 5 * a * C) + L * (12 * a * C + 5 * a * F) + 2 * a * V;
  return t;
}

// Of one token: H heads of (T + 1) / 2 scores on average and F sigmoids in every layer, each forward and
// again backward, and the loss over V words. What model.recompute computes again comes on top.
double exponentials(const ModelConfig& config, Index context) {
  const double L = static_cast<double>(config.layers), H = static_cast<double>(config.heads),
               F = static_cast<double>(config.mlp_width()), V = static_cast<double>(config.vocab);
  const double scores = H * static_cast<double>(context + 1) / 2;
  const Recompute recompute = config.recompute;
  const double again = recompute == Recompute::kBlock ? scores + F : recompute == Recompute::kMlp ? F : 0;
  return L * (2 * (scores + F) + again) + V;
}

// Kernels of a layer in forward and backward: four products (eight backwards), two residual passes, norm and
// rotation, attention, SwiGLU, and a few small ones.
constexpr double kKernelsPerLayer = 40;
// AdamW: parameter, gradient and two states in, parameter, two states and a zeroed gradient out, and a bf16 copy.
constexpr double kUpdateBytes = 34;

}  // namespace

PlannedStep plan_step(const RunConfig& config, const Cluster& cluster) {
  const ModelConfig& model = config.model;
  const BatchShape shape{config.train.batch, config.context()};
  PlannedStep step;
  step.plan = plan_model(model, shape);
  const ModelPlan& plan = step.plan;
  const double activation = model.uses_bf16() ? 2 : 4;
  step.state_bytes = plan.state_bytes_per_token;
  step.useful_flops = plan.forward.total() + plan.backward.total();
  const Traffic bytes = traffic(model, step.state_bytes, activation);
  const double parameters = static_cast<double>(plan.table.parameter_count());

  StepWork& work = step.work;
  work.micro_tokens = static_cast<double>(shape.N());
  work.flops_forward = plan.forward.total() - plan.forward.residual;
  work.flops_backward = plan.backward.total() - plan.backward.residual + plan.recomputed;
  work.bytes_forward = bytes.forward, work.bytes_backward = bytes.backward;
  work.exponentials = exponentials(model, config.context());
  work.kernels = kKernelsPerLayer * static_cast<double>(model.layers);
  work.parameters = parameters;
  work.update_bytes = kUpdateBytes * parameters;
  work.gradient_bytes = 4 * parameters;
  double layers = 0;
  for (const Param& param : plan.table.list())
    if (param.name.starts_with("transformer.h.")) layers += static_cast<double>(param.count);
  work.tail_share = 1 - layers / parameters;

  OptimizerConfig optimizer = config.train.optimizer;
  if (cluster.shared_state) optimizer.share = {0, static_cast<int>(cluster.devices)};
  Arena state = Arena::measuring();
  make_optimizer(plan.table, model.hidden_lr_factor(), optimizer, state);
  step.memory_bytes = static_cast<double>(plan.total_bytes + state.used_bytes());
  return step;
}

}  // namespace ddl
