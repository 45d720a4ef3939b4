#include "torch/flat_parameters.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros_like.h>

#include "core/error.h"

namespace ddl {

FlatParameters::FlatParameters(const Weights& weights, float* values, const at::Device& device)
    : weights_(weights),
      device_(device),
      host_(at::from_blob(values, {std::ssize(weights.values())}, at::kFloat)),
      values_(device.is_cpu() ? host_ : host_.to(device)) {
  DDL_CHECK(!weights.packed(), "torch multiplies with f32 and bf16 matrices");
}

FlatParameters::FlatParameters(Weights& weights, const at::Device& device)
    : FlatParameters(weights, weights.values().data(), device) {
  gradients_ = at::zeros_like(values_);
}

FlatParameters FlatParameters::for_inference(const Weights& weights, const at::Device& device) {
  return {weights, const_cast<float*>(weights.values().data()), device};  // which nobody writes to
}

at::Tensor FlatParameters::leaf(Index offset, const std::vector<std::int64_t>& shape) {
  const auto [found, fresh] = leaves_.try_emplace(offset);
  if (fresh) {
    std::int64_t count = 1;
    for (const std::int64_t n : shape) count *= n;
    at::Tensor view = values_.narrow(0, offset, count).view(shape).detach();
    if (trains()) {
      view.requires_grad_(true);
      view.mutable_grad() = gradients_.narrow(0, offset, count).view(shape);
    }
    found->second = view;
  }
  DDL_CHECK(found->second.sizes().vec() == shape, "one place has two shapes");
  return found->second;
}

at::Tensor FlatParameters::leaf(const std::string& name) {
  const Param& p = weights_.table().find(name);
  return leaf(p.offset, {p.shape.begin(), p.shape.end()});
}

at::Tensor FlatParameters::leaf_of_joined(const std::string& name, Index rows) {
  const Param& p = weights_.table().find(name);
  return leaf(p.offset, {rows, p.shape.back()});
}

void FlatParameters::download() {
  if (!on_cpu()) host_.copy_(values_);
}
void FlatParameters::upload() {
  if (!on_cpu()) values_.copy_(host_);
}

}  // namespace ddl
