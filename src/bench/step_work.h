// What a training step of a configuration has to do: FLOPs exact from the shapes, bytes by the formulas below.
#pragma once

#include "bench/step_model.h"
#include "model/plan.h"
#include "train/run_config.h"

namespace ddl {

// The vocabulary must be set.
struct PlannedStep {
  ModelPlan plan;
  StepWork work;
  double useful_flops = 0;  // of one token
  double state_bytes = 0;   // of one token's residual state
  double memory_bytes = 0;  // of one device: weights, gradients, optimizer, activations
};
PlannedStep plan_step(const RunConfig& config, const Cluster& cluster);

}  // namespace ddl
