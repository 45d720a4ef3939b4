// The optimizer of a model whose parameters are not in this process's memory. AdamW (ATen's fused one) and
// Muon (ATen's products) run where the parameters are; any other optimizer runs on the host, on copies. The
// host's Optimizer keeps the state for checkpoints: download() brings it there, upload() takes it back.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "model/optimizer/adamw.h"
#include "model/optimizer/muon.h"
#include "torch/flat_parameters.h"

namespace ddl {

class DeviceOptimizer {
 public:
  DeviceOptimizer(const Weights& weights, const OptimizerConfig& config, Optimizer& host,
                  FlatParameters& parameters);

  Optimizer::Update step(Weights& weights, double lr, const Exec& ex);
  void download();
  void upload();

 private:
  struct Group {  // tensors that AdamW updates alike
    double lr_factor = 1;
    bool decays = false;
    std::vector<at::Tensor> values, gradients, mean, square;
  };
  struct Matrix {  // Muon's
    double lr_factor = 1;
    bool decays = false;
    at::Tensor value, gradient, momentum;  // [rows, cols]
  };
  // A piece of state, where it is used and where it is kept.
  struct Mirror {
    at::Tensor device, host;
  };
  Optimizer::Update step_on_host(Weights& weights, double lr, const Exec& ex);
  void add_group(const TensorEntry& t, const at::Tensor& mean, const at::Tensor& square);
  void update(Group& group, double lr, double number) const;
  void update(Matrix& matrix, double lr) const;

  const OptimizerConfig config_;
  // Of config_, null where another optimizer was chosen. Muon leaves some tensors to AdamW; without it all is the host's.
  const MuonOptions* const muon_;
  const AdamWOptions* const adamw_;
  Optimizer& host_;
  FlatParameters& parameters_;
  std::vector<Group> groups_;
  std::vector<Matrix> matrices_;
  std::vector<Mirror> mirrors_;
  at::Tensor average_;
};

}  // namespace ddl
