// A model's parameters as torch sees them: leaves that are views of one flat array, laid out by the ParamTable, with
// gradients that are views of another. So checkpoints, optimizers and several ranks see what the native engine has.
// On the CPU the array is the memory of Weights itself; elsewhere it is a copy (values, host).
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "model/weights.h"

namespace ddl {

class FlatParameters {
 public:
  FlatParameters(Weights& weights, const at::Device& device);
  // Without gradients.
  static FlatParameters for_inference(const Weights& weights, const at::Device& device);

  // A leaf; the same one for the same place. `rows` counts those of the tensors that are joined after it, too.
  at::Tensor leaf(const std::string& name);
  at::Tensor leaf_of_joined(const std::string& name, Index rows);

  const at::Tensor& values() const { return values_; }
  const at::Tensor& gradients() const { return gradients_; }
  bool trains() const { return gradients_.defined(); }
  const at::Device& device() const { return device_; }
  bool on_cpu() const { return device_.is_cpu(); }
  void download();  // values to the weights
  void upload();

 private:
  FlatParameters(const Weights& weights, float* values, const at::Device& device);
  at::Tensor leaf(Index offset, const std::vector<std::int64_t>& shape);

  const Weights& weights_;
  const at::Device device_;
  at::Tensor host_, values_, gradients_;
  std::map<Index, at::Tensor> leaves_;
};

}  // namespace ddl
