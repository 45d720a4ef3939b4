#include "torch/trainable.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/profiler.h"
#include "model/native/engine.h"
#include "torch/device_optimizer.h"
#include "torch/flat_parameters.h"
#include "torch/residual_stream.h"
#include "torch/sublayers.h"
#include "torch/translated.h"

namespace ddl {
namespace {

constexpr const char* kLessMemory =
    "a smaller train.batch with a larger train.accumulate, or model.recompute=block, needs less";

class TorchTrainable final : public TrainableModel {
 public:
  TorchTrainable(const ModelConfig& config, BatchShape shape, const OptimizerConfig& optimizer,
                 std::uint64_t seed, const Exec& ex, const TorchPlace& place)
      : config_(config),
        shape_(shape),
        weights_(config, seed, ex),
        parameters_(weights_, place.device),
        activations_(config.uses_bf16() ? at::kBFloat16 : at::kFloat),
        stream_(make_stream(place, ex)),
        sublayers_(config, parameters_, activations_, shape.T,
                   uses_kernels(place) ? place.kernels : nullptr) {
    Arena measured = Arena::measuring();
    make_optimizer(weights_.table(), config.hidden_lr_factor(), optimizer, measured);
    optimizer_arena_ = Arena::owning(measured.used_bytes());
    optimizer_ = make_optimizer(weights_.table(), config.hidden_lr_factor(), optimizer, optimizer_arena_);
    optimizer_->start_average(weights_.values(), ex);
    if (!parameters_.on_cpu())
      on_device_ = std::make_unique<DeviceOptimizer>(weights_, optimizer, *optimizer_, parameters_);
  }

  const ModelConfig& config() const override { return config_; }
  BatchShape shape() const override { return shape_; }
  Weights& weights() override { return weights_; }
  Optimizer& optimizer() override { return *optimizer_; }

  void download(const Exec&) override {
    if (on_device_) translated(kLessMemory, [&] { parameters_.download(), on_device_->download(); });
  }
  void upload(const Exec& ex) override {
    weights_.update_copy(ex);
    if (on_device_) translated(kLessMemory, [&] { parameters_.upload(), on_device_->upload(); });
  }

  double loss(const BatchView& batch, const TokenScores& scores, const Exec& ex) override {
    return translated(kLessMemory, [&] {
      const at::NoGradGuard no_graph;
      return sublayers_.loss(rows(forward(batch, ex)), targets(batch), scores, 0, nullptr);
    });
  }

  double loss_and_grad(const BatchView& batch, double grad_scale, const Exec& ex) override {
    DDL_CHECK(grad_scale != 0, "grad_scale 0 is loss()");
    return translated(kLessMemory, [&] {
      const at::AutoGradMode with_graph(true);
      const at::Tensor context = forward(batch, ex);
      at::Tensor dcontext;
      double mean = 0;
      {
        const ProfileScope scope("torch: head", ex);
        mean = sublayers_.loss(rows(context.detach()), targets(batch), {}, grad_scale, &dcontext);
      }
      const ProfileScope scope("torch: backward", ex);
      context.backward(dcontext.view_as(context));
      return mean;
    });
  }

  // Elsewhere than on the CPU: a copy, for looking at.
  std::span<float> gradients() override {
    gradients_here_ = parameters_.gradients().cpu();
    return {static_cast<float*>(gradients_here_.data_ptr()), weights_.values().size()};
  }
  std::optional<Gpu> gpu() const override {
    if (parameters_.on_cpu()) return std::nullopt;
    const int number = std::max<int>(parameters_.device().index(), 0);
    return Gpu{number, gpu_address(number)};
  }
  std::span<float> gradients_to_sum() override {
    return {static_cast<float*>(parameters_.gradients().data_ptr()), weights_.values().size()};
  }

  Optimizer::Update update(double lr, const Exec& ex) override {
    if (on_device_) return translated(kLessMemory, [&] { return on_device_->step(weights_, lr, ex); });
    return optimizer_->step(weights_.values(), gradients(), weights_.copy(), lr, ex);
  }
  void discard_gradients(const Exec&) override { parameters_.gradients().zero_(); }

  std::vector<TokenSeries> series(Index s) const override { return stream_->series(s); }

  // Not in it: what autograd keeps between the passes.
  std::vector<Arena::Entry> memory() const override {
    std::vector<Arena::Entry> all = weights_.arena().ledger();
    all.push_back({"gradients", weights_.values().size() * sizeof(float)});
    for (const auto& more : {stream_->memory(), optimizer_arena_.ledger()})
      all.insert(all.end(), more.begin(), more.end());
    return all;
  }

 private:
  bool uses_kernels(const TorchPlace& place) const {
    return place.kernels && (place.stream == StreamKind::kKernels || !place.device.is_cpu());
  }

  std::unique_ptr<ResidualStream> make_stream(const TorchPlace& place, const Exec& ex) {
    const StreamShape stream_shape{shape_, activations_};
    if (place.stream == StreamKind::kVerbs || (place.stream == StreamKind::kAuto && place.device.is_cpu()))
      return make_verb_stream(weights_, parameters_, stream_shape, ex);
    if (place.stream != StreamKind::kFormulas && place.kernels)
      if (auto fused = make_kernel_stream(config_, parameters_, stream_shape, *place.kernels)) return fused;
    return make_formula_stream(config_, parameters_, activations_);
  }

  at::Tensor forward(const BatchView& batch, const Exec& ex) {
    const ProfileScope scope("torch: forward", ex);
    if (at::get_num_threads() != ex.threads) at::set_num_threads(ex.threads);
    stream_->use(ex);
    at::Tensor context = stream_->start(sublayers_.embed(on_device(batch.token_BT)));
    for (Index s = 0; s < config_.sublayers(); ++s)
      context = stream_->write_and_read(s, sublayers_.forward(s, context));
    return context;
  }

  at::Tensor rows(const at::Tensor& context_BTC) const {
    return context_BTC.reshape({shape_.N(), config_.width});
  }
  at::Tensor on_device(const std::int32_t* numbers_BT) const {
    return at::from_blob(const_cast<std::int32_t*>(numbers_BT), {shape_.B, shape_.T}, at::kInt)
        .to(parameters_.device(), at::kLong);
  }
  at::Tensor targets(const BatchView& batch) const { return on_device(batch.target_BT).view({-1}); }

  const ModelConfig config_;
  const BatchShape shape_;
  Weights weights_;
  FlatParameters parameters_;
  const at::ScalarType activations_;
  std::unique_ptr<ResidualStream> stream_;
  Sublayers sublayers_;
  Arena optimizer_arena_ = Arena::measuring();
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<DeviceOptimizer> on_device_;  // null on the CPU
  at::Tensor gradients_here_;
};

}  // namespace

std::unique_ptr<TrainableModel> make_torch_trainable(const ModelConfig& config, BatchShape shape,
                                                     const OptimizerConfig& optimizer, std::uint64_t seed,
                                                     const Exec& ex, const TorchPlace& place) {
  return translated(kLessMemory, [&] {
    return std::make_unique<TorchTrainable>(config, shape, optimizer, seed, ex, place);
  });
}

}  // namespace ddl
